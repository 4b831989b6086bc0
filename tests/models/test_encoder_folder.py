"""Towers of queries and passages: each encodes its own texts, learns and reloads, as in sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import AutoModel, AutoTokenizer

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.encoder_folder import write_towers
from stillhouse.models.encoder_settings import EncoderSettings
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.towers import BagOfWordsTower, Role, Tower, TransformerTower

EXACT = InferenceConfig(precision="fp32", batch_tokens=40)
TEXTS = ["the red bird sings", "a fish", "three birds", "", "which blue tree grows in the green one and the red two"]
ROLES: tuple[Role, ...] = ("query", "passage")
KINDS = ["shared Transformer", "separate Transformers", "shared bag of words", "separate bags of words"]


def written(tiny_model: Path, folder: Path, kind: str, normalize: bool = True) -> Path:
    """An encoder folder with random towers. Its lengths cut the last of `TEXTS` to 4 words (query) or 7 (passage)."""
    torch.manual_seed(3)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model, local_files_only=True)
    towers: dict[Role, Tower] = {}
    for role in ("passage", "query") if "separate" in kind else ("passage",):
        if "bag" in kind:
            towers[role] = BagOfWordsTower(len(tokenizer), (2, 3, 0), width=6, embedding=16, hidden=8)
            nn.init.normal_(towers[role].embedding.weight)
        else:
            encoder = AutoModel.from_pretrained(tiny_model)
            with torch.no_grad():
                for parameter in encoder.parameters():
                    parameter.add_(0.05 * torch.randn_like(parameter))
            towers[role] = TransformerTower(encoder, "mean", nn.Linear(32, 6))
    settings = EncoderSettings("mean", normalize, 6, 9, 6, "separate" if "separate" in kind else "shared")
    folder.mkdir()
    write_towers(folder, towers, tokenizer, settings)
    return folder


def vectors(encoder: BiEncoder, role: Role, tmp_path: Path) -> np.ndarray:
    return encode(encoder, encoder.texts(TEXTS, role), Context(tmp_path, "cpu", quiet=True), "test", EXACT)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_sentence_transformers_gives_the_same_vectors(
    tiny_model: Path, tmp_path: Path, kind: str, normalize: bool
) -> None:
    folder = written(tiny_model, tmp_path / "one", kind, normalize)
    encoder = BiEncoder.load(folder)
    encoder.save(tmp_path / "two")
    for name in ("one", "two"):
        other = SentenceTransformer(str(tmp_path / name), device="cpu")
        np.testing.assert_allclose(vectors(encoder, "passage", tmp_path), other.encode_document(TEXTS), atol=1e-5)
        # sentence-transformers has one length for both roles of shared towers.
        count = len(TEXTS) if "separate" in kind else len(TEXTS) - 1
        queries = vectors(encoder, "query", tmp_path)
        np.testing.assert_allclose(queries[:count], other.encode_query(TEXTS)[:count], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_written_again_has_the_same_bytes(tiny_model: Path, tmp_path: Path, kind: str) -> None:
    written(tiny_model, tmp_path / "one", kind)
    BiEncoder.load(tmp_path / "one").save(tmp_path / "two")
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert sorted(files) == sorted(
        path.relative_to(tmp_path / "two") for path in (tmp_path / "two").rglob("*") if path.is_file()
    )
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


@pytest.mark.parametrize(("role", "place", "length"), [("query", "query", 6), ("passage", ".", 9)])
def test_a_role_is_encoded_by_its_own_transformer(
    tiny_model: Path, tmp_path: Path, role: Role, place: str, length: int
) -> None:
    """Computes the expected vector by hand: truncation, hidden states, their mean and the layer in `2_Dense`."""
    from safetensors.numpy import load_file

    folder = written(tiny_model, tmp_path / "one", "separate Transformers")
    model = AutoModel.from_pretrained(folder / place)
    layer = load_file(folder / place / "2_Dense" / "model.safetensors")
    found = vectors(BiEncoder.load(folder), role, tmp_path)
    for text, vector in zip(TEXTS, found):
        ids = AutoTokenizer.from_pretrained(folder)(text, truncation=True, max_length=length)["input_ids"]
        with torch.no_grad():
            states = model(input_ids=torch.tensor([ids])).last_hidden_state[0].double().numpy()
        expected = layer["linear.weight"] @ states.mean(0) + layer["linear.bias"]
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize(("role", "place", "words"), [("query", "query", 4), ("passage", "document", 7)])
def test_a_role_is_encoded_by_its_own_bag_of_words(
    tiny_model: Path, tmp_path: Path, role: Role, place: str, words: int
) -> None:
    from safetensors.numpy import load_file

    folder = written(tiny_model, tmp_path / "one", "separate bags of words", normalize=False)
    parts = [
        load_file(folder / place / name / "model.safetensors") for name in ("0_StaticEmbedding", "1_Dense", "2_Dense")
    ]
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    found = vectors(BiEncoder.load(folder), role, tmp_path)
    for text, vector in zip(TEXTS, found):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"][:words]
        rows = parts[0]["embedding.weight"][ids].astype(float)
        mean = rows.mean(0) if len(ids) else np.zeros(16)
        hidden = np.tanh(parts[1]["linear.weight"] @ mean + parts[1]["linear.bias"])
        np.testing.assert_allclose(vector, parts[2]["linear.weight"] @ hidden + parts[2]["linear.bias"], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_only_the_tower_of_the_role(tiny_model: Path, tmp_path: Path, kind: str) -> None:
    encoder = BiEncoder.load(written(tiny_model, tmp_path / "one", kind))
    for role in ROLES:
        encoder.zero_grad(set_to_none=True)
        texts = encoder.texts(TEXTS, role)
        encoder(*texts.batch(range(len(TEXTS)), torch.device("cpu")), texts.role)[:, 0].sum().backward()
        for name, parameter in encoder.named_parameters():
            reached = parameter.grad is not None and bool(parameter.grad.any())
            # A key's bias adds the same to all scores of a softmax, and vectors do not use the pooler.
            if ".pooler." not in name and ".key.bias" not in name:
                assert reached == ("shared" in kind or name.startswith(f"towers.{role}.")), (role, name)


@pytest.mark.parametrize("kind", ["shared Transformer", "shared bag of words"])
def test_divided_towers_start_alike_and_are_two(tiny_model: Path, tmp_path: Path, kind: str) -> None:
    encoder = BiEncoder.load(written(tiny_model, tmp_path / "one", kind), towers="separate", query_length=9)
    np.testing.assert_array_equal(vectors(encoder, "query", tmp_path), vectors(encoder, "passage", tmp_path))
    with torch.no_grad():
        for parameter in encoder.tower("query").parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    encoder.save(tmp_path / "two")
    again = BiEncoder.load(tmp_path / "two")
    before = BiEncoder.load(tmp_path / "one")
    np.testing.assert_array_equal(vectors(again, "passage", tmp_path), vectors(before, "passage", tmp_path))
    assert np.abs(vectors(again, "query", tmp_path) - vectors(again, "passage", tmp_path)).max() > 0.01


@pytest.mark.parametrize("kind", ["separate Transformers", "separate bags of words"])
def test_joined_towers_are_that_of_the_passages(tiny_model: Path, tmp_path: Path, kind: str) -> None:
    folder = written(tiny_model, tmp_path / "one", kind)
    joined = BiEncoder.load(folder, towers="shared", query_length=9)
    expected = vectors(BiEncoder.load(folder), "passage", tmp_path)
    np.testing.assert_array_equal(vectors(joined, "query", tmp_path), expected)


def test_a_folder_without_an_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no encoder; `stillhouse fetch-model` or `stillhouse pretrain`"):
        BiEncoder.load(tmp_path)
