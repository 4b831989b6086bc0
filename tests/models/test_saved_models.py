"""Folders that sentence-transformers saved give its vectors: lower case, dimensions, prompts, early layouts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import normalizers
from transformers import AutoTokenizer

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.query_encoder import EXACT, open_query_encoder
from stillhouse.models.source import fetch
from stillhouse.models.towers import Role

CPU = Context(Path(), "cpu", quiet=True)
TEXTS = ["Red bird SINGS", "fish", "", "Which blue TREE grows in the green one"]
ROLES: tuple[Role, ...] = ("query", "passage")


@pytest.fixture
def cased(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model with a tokenizer that knows words in lower case alone and does not lower-case texts."""
    folder = shutil.copytree(tiny_model, tmp_path / "cased")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.save_pretrained(folder)
    return folder


def saved(model: Path, folder: Path, *, normalize: bool = False, **changes: Any) -> Path:
    """Save a model with mean pooling as sentence-transformers does."""
    modules = [Transformer(str(model), max_seq_length=24), Pooling(32, "mean")]
    model = SentenceTransformer(modules=modules + [Normalize()] * normalize, device="cpu", **changes)
    model.similarity_fn_name = "dot"
    model.save_pretrained(str(folder))
    return folder


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | values))


def vectors(folder: Path, role: Role) -> np.ndarray:
    encoder = BiEncoder.load(folder)
    return encode(encoder, encoder.texts(TEXTS, role), CPU, "test", EXACT)


def fetched(source: Path, folder: Path, **settings: Any) -> Path:
    folder.mkdir()
    fetch(str(source), None, None, 24, 24, folder, **settings)
    return folder


def refuse_difference(source: Path, tmp_path: Path, other: SentenceTransformer, *, length_1: bool = False) -> None:
    """Compare the vectors of a folder, and of what `fetch-model` makes of it, with those of sentence-transformers."""
    folder = fetched(source, tmp_path / "fetched")
    again = SentenceTransformer(str(folder), device="cpu")
    makers = (other.encode_query, again.encode_query), (other.encode_document, again.encode_document)
    for role, (model, model_again) in zip(ROLES, makers):
        expected = model(TEXTS, normalize_embeddings=length_1)
        np.testing.assert_allclose(vectors(source, role), expected, atol=1e-5)
        np.testing.assert_allclose(vectors(folder, role), expected, atol=1e-5)
        np.testing.assert_allclose(model_again(TEXTS, normalize_embeddings=length_1), expected, atol=1e-5)


@pytest.mark.parametrize("file", ["sentence_bert_config.json", "sentence_roberta_config.json"])
def test_texts_are_lower_cased_as_the_folder_says(cased: Path, tmp_path: Path, file: str) -> None:
    source = saved(cased, tmp_path / "saved")
    before = vectors(source, "query")
    (source / "sentence_bert_config.json").unlink()
    change(source / file, max_seq_length=24, do_lower_case=True)
    assert np.abs(vectors(source, "query") - before).max() > 0.1
    refuse_difference(source, tmp_path, SentenceTransformer(str(source), device="cpu"))


@pytest.mark.parametrize("normalize", [False, True])
def test_the_saved_dimensions_are_kept(tiny_model: Path, tmp_path: Path, normalize: bool) -> None:
    """Vectors of length 1 keep it; sentence-transformers leaves that to its similarity, the cosine."""
    source = saved(tiny_model, tmp_path / "saved", normalize=normalize, truncate_dim=8)
    assert BiEncoder.load(source).width == 8
    refuse_difference(source, tmp_path, SentenceTransformer(str(source), device="cpu"), length_1=normalize)


def test_questions_are_searched_in_the_saved_dimensions(
    tiny_model: Path, tmp_path: Path, small_corpus: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    source = saved(tiny_model, tmp_path / "saved", normalize=True, truncate_dim=8)
    encoder = run_step("fetch-model", {}, model=str(source), query_length=24, passage_length=24)["encoder"]
    inputs = {"corpus": small_corpus, "retriever": encoder}
    index = run_step("index", inputs, precision="fp32")["index"]
    assert json.loads((index / "index.json").read_text())["width"] == 8
    run_step("retrieve", inputs | {"index": index}, precision="fp32")
    reader = open_query_encoder(encoder, CPU)
    expected = SentenceTransformer(str(source), device="cpu").encode_query(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(reader.vectors(reader.tokenize(TEXTS)), expected, atol=1e-5)


@pytest.mark.parametrize("dimensions", [0, "8", True])
def test_dimensions_that_are_no_number_are_refused(tiny_model: Path, tmp_path: Path, dimensions: object) -> None:
    source = saved(tiny_model, tmp_path / "saved")
    change(source / "config_sentence_transformers.json", truncate_dim=dimensions)
    with pytest.raises(InputError, match="truncate_dim"):
        BiEncoder.load(source)


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"query": "red ", "document": "blue "}, None),
        ({"query": "red "}, "query"),
        ({"document": "blue "}, "document"),
        ({"query": "red ", "clustering": "fish "}, "clustering"),
    ],
)
def test_prompts_are_those_of_encode_query_and_encode_document(
    tiny_model: Path, tmp_path: Path, prompts: dict[str, str], default: str | None
) -> None:
    source = saved(tiny_model, tmp_path / "saved", prompts=prompts, default_prompt_name=default)
    refuse_difference(source, tmp_path, SentenceTransformer(str(source), device="cpu"))


@pytest.mark.parametrize("default", [None, "s2p"])
@pytest.mark.parametrize("other", [{}, {"s2s": "tree "}])
def test_prompts_for_something_else_must_be_chosen(
    tiny_model: Path, tmp_path: Path, default: str | None, other: dict[str, str]
) -> None:
    prompts = {"s2p": "fish "} | other
    source = saved(tiny_model, tmp_path / "saved", prompts=prompts, default_prompt_name=default)
    for open_folder in (BiEncoder.load, lambda folder: fetched(folder, tmp_path / "refused")):
        with pytest.raises(InputError, match=f"the prompts {', '.join(prompts)}, but none for queries or passages"):
            open_folder(source)
    folder = fetched(source, tmp_path / "chosen", query_prompt="fish ", passage_prompt="")
    model = SentenceTransformer(str(source), device="cpu")
    np.testing.assert_allclose(vectors(folder, "query"), model.encode(TEXTS, prompt_name="s2p"), atol=1e-5)
    np.testing.assert_allclose(vectors(folder, "passage"), model.encode(TEXTS, prompt=""), atol=1e-5)


def test_a_layout_of_early_versions_is_opened(cased: Path, tmp_path: Path) -> None:
    """sentence-transformers before 2.2 kept the Hugging Face files in `0_Transformer`."""
    source = saved(cased, tmp_path / "saved")
    (source / "0_Transformer").mkdir()
    for path in list(source.iterdir()):
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json", "README.md"):
            path.rename(source / "0_Transformer" / path.name)
    modules = json.loads((source / "modules.json").read_text())
    modules[0] |= {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    (source / "modules.json").write_text(json.dumps(modules))
    (source / "0_Transformer" / "sentence_bert_config.json").write_text('{"max_seq_length": 24, "do_lower_case": true}')
    refuse_difference(source, tmp_path, SentenceTransformer(str(source), device="cpu"))
