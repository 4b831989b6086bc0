"""Models of every family that sentence-transformers opens: the same vectors, before and after saving."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import CHAINS, ENCODERS, FAMILIES, T5S, hugging_face_folder, labse, opened, saved
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Router, Transformer
from torch import nn

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.source import fetch

TEXTS = ["why do ships carry accurate clocks", "mice", "who hears the mice at sea ? the sea a long long way", ""]
QUERY, PASSAGE = "who hears : ", "the "
POOLINGS = ("cls", "lasttoken", "max", "mean", "mean_sqrt_len_tokens", "weightedmean")
EXACT = InferenceConfig(precision="fp32")


def assert_same(folder: Path, work: Path, cut: bool = False) -> None:
    """Vectors are those of sentence-transformers, opened from the folder and from what is fetched and saved."""
    places = [folder, work / "fetched"]
    fetch(str(folder), None, None, 90, 90, places[1])
    peer = SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs={"dtype": "float32"})
    expected = {
        # What is left of a vector of length 1 is scaled to this length again, which changes no order.
        "query": peer.encode_query(TEXTS, normalize_embeddings=cut),
        "passage": peer.encode_document(TEXTS, normalize_embeddings=cut),
    }
    context = Context(work, quiet=True)
    for place in places:
        again = SentenceTransformer(str(place), device="cpu", local_files_only=True)
        own = BiEncoder.load(place)
        for role, vectors in expected.items():
            texts = own.queries(TEXTS) if role == "query" else own.passages(TEXTS)
            np.testing.assert_allclose(encode(own, texts, context, "texts", EXACT), vectors, atol=1e-5, rtol=0)
        if place != folder:
            np.testing.assert_allclose(
                again.encode_query(TEXTS, normalize_embeddings=cut), expected["query"], atol=1e-5, rtol=0
            )
            np.testing.assert_allclose(
                again.encode_document(TEXTS, normalize_embeddings=cut), expected["passage"], atol=1e-5, rtol=0
            )
    assert np.ptp(expected["query"], axis=0).max() > 0.01, "texts differ"


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_makes_the_vectors_of_sentence_transformers(kind: str, tmp_path: Path) -> None:
    first = opened(kind, tmp_path / "model")
    pooling = "mean" if kind in ENCODERS or kind in T5S else "lasttoken"
    modules = [first, Pooling(first.get_embedding_dimension(), pooling), Normalize()]
    assert_same(saved(modules, tmp_path / "peer"), tmp_path)


@pytest.mark.parametrize("pooling", [*POOLINGS, ("mean", "max")])
def test_every_pooling(pooling: Any, tmp_path: Path) -> None:
    kind = "qwen3" if pooling in ("lasttoken", "weightedmean") else "bert"
    first = opened(kind, tmp_path / "model")
    assert_same(saved([first, Pooling(32, pooling)], tmp_path / "peer"), tmp_path)


@pytest.mark.parametrize("chain", CHAINS)
def test_chains_of_modules(chain: Callable[[Transformer], list[nn.Module]], tmp_path: Path) -> None:
    first = opened("bert", tmp_path / "model")
    assert_same(saved(chain(first), tmp_path / "peer"), tmp_path)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_model_for_cosines_has_vectors_of_length_1(pooling: str, tmp_path: Path) -> None:
    first = opened("bert", tmp_path / "model")
    assert_same(
        saved([first, Pooling(32, pooling)], tmp_path / "peer", similarity_fn_name="cosine"), tmp_path, cut=True
    )


def test_a_decoder_without_padding_is_padded_unread(tmp_path: Path) -> None:
    first = opened("llama", tmp_path / "model")
    expected = SentenceTransformer(modules=[first, Pooling(32, "lasttoken")], device="cpu").encode(TEXTS)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (path := tmp_path / "model" / name).is_file():
            path.write_text(path.read_text(encoding="utf-8").replace('"pad_token": "<pad>",', ""), encoding="utf-8")
    fetch(str(tmp_path / "model"), None, None, 90, 90, tmp_path / "fetched")
    own = BiEncoder.load(tmp_path / "fetched")
    assert own.tokenizer.pad_token == "</s>"
    found = encode(own, own.queries(TEXTS), Context(tmp_path, quiet=True), "texts", EXACT)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_routes_that_share_a_transformer_are_saved_with_the_larger_length(tmp_path: Path) -> None:
    first = opened("bert", tmp_path / "model")
    router = Router.for_query_document([first, Pooling(32, "mean")], [first, Pooling(32, "mean")])
    folder = saved([router], tmp_path / "peer")
    apart = BiEncoder.load(folder, towers="separate").towers
    assert not {*apart["query"].parameters()} & {*apart["passage"].parameters()}
    for name, query_length, passage_length in (("a", 6, 24), ("b", 24, 6)):
        fetch(str(folder), None, None, query_length, passage_length, tmp_path / name)
        again = SentenceTransformer(str(tmp_path / name), device="cpu", local_files_only=True)
        own = BiEncoder.load(tmp_path / name)
        texts = own.passages([TEXTS[2]]) if passage_length == 24 else own.queries([TEXTS[2]])
        found = encode(own, texts, Context(tmp_path, quiet=True), "texts", EXACT)
        np.testing.assert_allclose(again.encode_document([TEXTS[2]]), found, atol=1e-5, rtol=0)


@pytest.mark.parametrize("include", [True, False], ids=["read", "left out"])
@pytest.mark.parametrize("kind", ["bert", "qwen3"])
def test_prompts_and_fewer_dimensions(kind: str, include: bool, tmp_path: Path) -> None:
    first = opened(kind, tmp_path / "model")
    modules = [first, Pooling(32, "mean", include_prompt=include), Normalize()]
    prompts = {"query": QUERY, "document": PASSAGE}
    assert_same(saved(modules, tmp_path / "peer", prompts=prompts, truncate_dim=16), tmp_path, cut=True)


def test_a_decoder_without_modules_ends_in_its_last_token(tmp_path: Path) -> None:
    folder = hugging_face_folder("qwen3", tmp_path / "model")
    fetch(str(folder), None, None, 90, 90, tmp_path / "fetched")
    first = Transformer(str(folder), model_kwargs={"dtype": "float32"})
    peer = SentenceTransformer(modules=[first, Pooling(32, "lasttoken"), Normalize()], device="cpu")
    own = BiEncoder.load(tmp_path / "fetched", normalize=True)
    found = encode(own, own.queries(TEXTS), Context(tmp_path, quiet=True), "texts", EXACT)
    np.testing.assert_allclose(found, peer.encode(TEXTS), atol=1e-5, rtol=0)


def test_code_and_other_modules_are_refused(tmp_path: Path) -> None:
    first = opened("bert", tmp_path / "model")
    folder = saved(labse(first), tmp_path / "peer")
    listed = (folder / "modules.json").read_text(encoding="utf-8")
    for wrong in ("os.Dense", "sentence_transformers.sparse_encoder.modules.SpladePooling"):
        right = "sentence_transformers.base.modules.dense.Dense"
        assert right in listed
        (folder / "modules.json").write_text(listed.replace(right, wrong), encoding="utf-8")
        with pytest.raises(InputError, match=r"modules\.json|SPLADE"):
            fetch(str(folder), None, None, 90, 90, tmp_path / "fetched")
