"""A linear layer on a retriever: its vectors are the old ones times a matrix, which learns what labels say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import families
import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.new_towers import multiply_vectors
from stillhouse.models.settings import InferenceConfig
from stillhouse.search.vector_index import VectorIndex
from stillhouse.training.fixed_passages import FixedPassages
from stillhouse.training.projection_training import Asked, Projection

Run = Callable[..., dict[str, Path]]
TEXTS = ["the red bird sings", "a tree grows", "where does the green fish sing"]


def vectors(encoder: BiEncoder, folder: Path) -> np.ndarray:
    return encode(encoder, encoder.passages(TEXTS), Context(folder, "cpu"), "some", InferenceConfig(precision="fp32"))


def open_model(kind: str, retriever: Path, folder: Path) -> BiEncoder:
    if kind == "LaBSE":
        return BiEncoder.load(families.saved(families.labse(families.opened("bert", folder / "hub")), folder / "labse"))
    encoder = BiEncoder.load(retriever, towers="separate" if kind == "separate" else "shared")
    if kind == "biased":
        encoder.settings = replace(encoder.settings, projection=24)
        encoder.tower("passage").projection = torch.nn.Linear(encoder.width, 24)
    if kind == "cut":
        encoder.settings = replace(encoder.settings, truncate_dim=12)
    return encoder


@pytest.mark.parametrize("kind", ["shared", "separate", "biased", "cut", "LaBSE"])
def test_the_vectors_are_multiplied(kind: str, retriever: Path, tmp_path: Path) -> None:
    encoder = open_model(kind, retriever, tmp_path)
    encoder.settings = replace(encoder.settings, normalize=False)
    matrix_DD = torch.randn(encoder.width, encoder.width, generator=torch.Generator().manual_seed(3))
    expected = vectors(encoder, tmp_path) @ matrix_DD.numpy().T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    encoder.settings = replace(encoder.settings, normalize=True)
    multiply_vectors(encoder, matrix_DD)
    encoder.save(tmp_path / "saved")
    for found in (
        vectors(encoder, tmp_path),
        vectors(BiEncoder.load(tmp_path / "saved"), tmp_path),
        SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode_document(TEXTS),
    ):
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_the_loss_is_its_equation(indexed: dict[str, Path]) -> None:
    corpus, index = Corpus.open(indexed["corpus"]), VectorIndex(indexed["old_index"])
    passages_ND = index.vectors(np.arange(24, dtype=np.int32)).astype(np.float64)
    queries_BD = np.random.default_rng(0).normal(size=(6, index.width))
    projection = Projection(index.width, normalize=True)
    torch.nn.init.normal_(projection.change_DD, std=0.1, generator=torch.Generator().manual_seed(1))
    matrix_DD = projection.matrix_DD().numpy().astype(np.float64)
    passages = FixedPassages(index, corpus, [f"q{n}" for n in range(12, 18)], 24, 0, torch.device("cpu"))
    asked = Asked(torch.from_numpy(queries_BD).float(), passages)
    total = 0.0
    for place, query_D in enumerate(queries_BD):
        q, all_ND = matrix_DD @ query_D, passages_ND @ matrix_DD.T
        scores = [q @ p / np.linalg.norm(q) / np.linalg.norm(p) / 0.05 for p in all_ND]
        total += -scores[12 + place] + math.log(sum(math.exp(score) for score in scores))
    assert asked.loss(projection, np.arange(6), 0, 0.05).item() == pytest.approx(total / 6, rel=1e-4)


def test_it_learns_from_labels(run_step: Run, indexed: dict[str, Path]) -> None:
    settings = {"learning_rate": 0.01, "max_steps": 60, "epochs": None, "batch_size": 12}
    made = run_step("train-projection", indexed, **settings)
    lines = (made["curves"] / "curves.csv").read_text().splitlines()[1:]
    train_losses, heldout = ([float(line.split(",")[column]) for line in lines] for column in (1, 2))
    assert train_losses[-1] < train_losses[0] / 2 and min(heldout) < heldout[0]
    old, new = BiEncoder.load(indexed["encoder"]), BiEncoder.load(made["retriever"])
    state = new.tower("passage").state_dict()
    assert state.pop("projection.weight").shape == (32, 32)
    assert all(value.equal(state[name]) for name, value in old.tower("passage").state_dict().items())
    # The step with the lowest loss on dev is kept, so no step of a training that only worsens it.
    kept = run_step("train-projection", indexed, "worse", **settings | {"learning_rate": 10.0, "batch_size": 1})
    assert BiEncoder.load(kept["retriever"]).tower("passage").projection.weight.equal(torch.eye(32))


def test_an_index_of_another_model_is_refused(run_step: Run, indexed: dict[str, Path], tiny_model: Path) -> None:
    other = run_step("fetch-model", {}, "other", model=str(tiny_model), pooling="mean", passage_length=48)["encoder"]
    assert read_manifest(other).digest != read_manifest(indexed["encoder"]).digest
    cut = run_step("index", {"corpus": indexed["corpus"], "retriever": indexed["encoder"]}, "cut", truncate_dim=8)
    with pytest.raises(InputError, match="without a cut"):
        run_step("train-projection", indexed | {"old_index": cut["index"]}, "of a cut index")
    with pytest.raises(InputError, match="another model"):
        run_step("train-projection", indexed | {"encoder": other}, "refused")
