"""Vectors on a GPU: the same bytes every time, near those of the CPU, also after a training on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig
from word_pieces import SPECIAL, WORDS

from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.transformer import random_model
from stillhouse.training import loop
from stillhouse.training.settings import RetrieverConfig

pytest.importorskip("ir_measures", reason="ir_measures, which ranks dev queries, is not installed")
from test_retriever_training import folder, teacher_of

from stillhouse.training.negatives import Negatives
from stillhouse.training.retriever_training import RetrieverLoss, fit_retriever

__all__ = ["folder"]  # a fixture

Array = np.ndarray
PRECISIONS = pytest.mark.parametrize("precision", ["fp32", "bf16"])
POOLINGS = pytest.mark.parametrize("pooling", ["cls", "mean"])


@pytest.fixture(scope="module")
def texts() -> Array:
    """700 passages of 1 to 60 words."""
    rng = np.random.default_rng(0)
    assert not set(WORDS) & set(SPECIAL)
    return np.array([" ".join(rng.choice(WORDS, size=rng.integers(1, 61))) for _ in range(700)], dtype=object)


def vectors_of(encoder: BiEncoder, texts: Array, device: str, work: Path, **config: Any) -> Array:
    context = Context(work, device, quiet=True)
    options = InferenceConfig(**{"batch_tokens": 2048, "precision": "fp32", **config})
    return encode(encoder, encoder.passages(list(texts)), context, "encoding", options)


@POOLINGS
@PRECISIONS
def test_the_same_passages_have_the_same_bytes(
    tiny_model: Path, texts: Array, tmp_path: Path, pooling: str, precision: str, device: torch.device
) -> None:
    encoder = BiEncoder.load(tiny_model, pooling=pooling, passage_length=64)
    once, again = (vectors_of(encoder, texts, device.type, tmp_path, precision=precision) for _ in range(2))
    assert once.tobytes() == again.tobytes() and np.allclose(np.linalg.norm(once, axis=1), 1, atol=1e-3)
    order = np.random.default_rng(1).permutation(len(texts))
    shuffled = vectors_of(encoder, texts[order], device.type, tmp_path, precision=precision)
    fewer = vectors_of(encoder, texts[order[:50]], device.type, tmp_path, precision=precision)
    for found, rows in ((shuffled, order), (fewer, order[:50])):
        assert found.tobytes() == once[rows].tobytes(), "a text's vector depends on the others"


@POOLINGS
def test_vectors_are_those_of_the_cpu(
    tiny_model: Path, texts: Array, tmp_path: Path, pooling: str, device: torch.device
) -> None:
    encoder = BiEncoder.load(tiny_model, pooling=pooling, passage_length=64)
    rounded = vectors_of(encoder, texts, device.type, tmp_path, precision="bf16")
    found = vectors_of(encoder, texts, device.type, tmp_path)
    expected = vectors_of(encoder, texts, "cpu", tmp_path)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(rounded, expected, rtol=0, atol=0.02)
    assert not np.array_equal(rounded, found)


def retriever(folder: Path, work: Path, device: str, stop_at: int | None = None, **more: Any) -> tuple[BiEncoder, Any]:
    """Train a retriever with a teacher for a few steps; being killed is a `KeyboardInterrupt`."""
    work.mkdir(exist_ok=True)
    corpus, negatives = Corpus.open(folder / "corpus"), Negatives.read(folder / "negatives")
    torch.manual_seed(5)
    encoder = BiEncoder.load(folder / "encoder", towers="separate")
    settings: dict[str, Any] = {"epochs": None, "max_steps": 6, "batch_size": 5, "eval_steps": 2}
    settings |= {"temperature": 0.1, "matryoshka_dims": [8, 16], "contrastive": "simlm_code", "precision": "fp32"}
    settings |= {"learning_rate": 0.003, "mini_batch_size": 3, "negatives_per_query": 3, "negatives_depth": 6}
    config = RetrieverConfig(**{**settings, "gradient_cache": True, **more})
    real, seen = RetrieverLoss.training, []

    def training(self: RetrieverLoss, drawn: Any) -> Any:
        seen.append(drawn)
        if len(seen) - 1 == stop_at:
            raise KeyboardInterrupt
        return real(self, drawn)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        patch.setattr(RetrieverLoss, "training", training)
        context = Context(work, device, quiet=True)
        rows = fit_retriever(encoder, corpus, negatives, teacher_of(corpus, negatives), config, context)
    return encoder, rows


@PRECISIONS
def test_a_retriever_trained_on_a_gpu_is_the_same_after_a_kill_and_on_a_cpu(
    folder: Path, texts: Array, tmp_path: Path, precision: str, device: torch.device
) -> None:
    """With dropout, a gradient cache, a teacher, several widths and separate towers."""
    whole, rows = retriever(folder, tmp_path / "whole", device.type, precision=precision)
    with pytest.raises(KeyboardInterrupt):
        retriever(folder, tmp_path / "resumed", device.type, stop_at=4, precision=precision)
    resumed, others = retriever(folder, tmp_path / "resumed", device.type, precision=precision)
    assert len(rows) == 4 and min(row.heldout_loss for row in rows[1:]) < rows[0].heldout_loss
    for row, other in zip(rows, others, strict=True):
        assert other.heldout_loss == pytest.approx(row.heldout_loss, abs=2e-3 if precision == "fp32" else 2e-2)
    found, again = (vectors_of(each, texts, device.type, tmp_path) for each in (whole, resumed))
    np.testing.assert_allclose(again, found, rtol=0, atol=1e-3 if precision == "fp32" else 1e-2)
    (tmp_path / "saved").mkdir()
    whole.save(tmp_path / "saved")
    loaded = BiEncoder.load(tmp_path / "saved")
    assert next(loaded.parameters()).device.type == "cpu"
    np.testing.assert_allclose(vectors_of(loaded, texts, "cpu", tmp_path), found, rtol=0, atol=1e-3)


def test_drawing_parameters_leaves_the_random_state_alone(tiny_model: Path, device: torch.device) -> None:
    config = AutoConfig.from_pretrained(tiny_model)
    torch.manual_seed(1)
    expected = torch.randn(3, device=device).tolist()
    torch.manual_seed(1)
    one, other = (random_model(tiny_model, config, 3) for _ in range(2))
    assert torch.randn(3, device=device).tolist() == expected
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters()))
