"""The losses of the retriever and the re-ranker on a GPU are those on the CPU, with the same gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from closeness import assert_each_close, difference, on_cpu
from torch import Tensor, nn

from stillhouse.models.acceleration.device import autocast
from stillhouse.models.acceleration.replaced import bf16_residuals
from stillhouse.models.acceleration.unpadded import without_padding

pytest.importorskip("ir_measures", reason="ir_measures, which ranks dev queries, is not installed")
from test_reranker_training import Setting
from test_retriever_training import CACHED, CASES, EXAMPLES, PARTS, folder, gradients, open_loss

__all__ = ["folder"]  # a fixture
EXACT = 1e-4
"""In fp32, the share of a gradient's norm by which it may differ."""
ROUNDED_LOSS, ROUNDED = 0.05, 0.15
"""In bf16, the share of the loss and of the whole gradient's norm, with cosines divided by a temperature of 0.1."""
WAYS = pytest.mark.parametrize("way", [{}, PARTS, CACHED], ids=["at once", "in parts", "cached"])


@contextmanager
def as_in_training(model: nn.Module, precision: str, padding: str, device: torch.device) -> Iterator[None]:
    with bf16_residuals(model, precision, device), without_padding(model) if padding == "none" else nullcontext():
        yield


def of_retriever(
    folder: Path, name: str, device: torch.device, precision: str = "fp32", **more: Any
) -> tuple[float, dict[str, Tensor]]:
    """The loss and the gradients of a step without dropout, as the training loop computes them."""
    loss, encoder = open_loss(folder, CASES[name], device, **more)
    encoder.eval()
    with as_in_training(encoder, precision, more.get("padding", "kept"), device):
        found = gradients(loss, encoder, CASES[name].get("examples", EXAMPLES), precision)
    assert all(values.device.type == device.type for values in found.values())
    return float(found.pop("loss")), on_cpu(found)


@WAYS
@pytest.mark.parametrize("name", CASES)
def test_a_retrievers_step_has_the_same_loss_and_gradient(
    folder: Path, name: str, way: dict[str, Any], device: torch.device
) -> None:
    """In fp32; in bf16 they are near."""
    loss, expected = of_retriever(folder, name, torch.device("cpu"))
    for padding in ("kept", "none"):
        found_loss, found = of_retriever(folder, name, device, padding=padding, **way)
        assert found_loss == pytest.approx(loss, rel=5e-5)
        assert_each_close(found, expected, EXACT)
        rounded_loss, rounded = of_retriever(folder, name, device, "bf16", padding=padding, **way)
        assert rounded_loss == pytest.approx(loss, rel=ROUNDED_LOSS)
        assert difference(rounded, expected) <= ROUNDED


def test_cached_gradients_have_the_same_dropout_in_both_encodings(folder: Path, device: torch.device) -> None:
    """Each part's seed also sets the GPU's random state, from which dropout is drawn there."""
    made = []
    for way in (PARTS, CACHED):
        loss, encoder = open_loss(folder, CASES["widths, teacher, separate towers"], device, **way)
        found = gradients(loss, encoder.train(), EXAMPLES)
        made.append((float(found.pop("loss")), on_cpu(found)))
    assert made[0][0] == pytest.approx(made[1][0], rel=1e-5)
    assert_each_close(made[1][1], made[0][1], EXACT)
    without, _ = of_retriever(folder, "widths, teacher, separate towers", device, **PARTS)
    assert made[0][0] != pytest.approx(without, rel=1e-3), "there was no dropout"


LOSSES: Mapping[str, Mapping[str, Any]] = {
    "listwise": {},
    "in parts": {"mini_batch_size": 6},
    "cosine": {"pooling": "cosine"},
}


def of_reranker(
    folder: Path, start: Path, case: Mapping[str, Any], device: torch.device, precision: str, padding: str = "kept"
) -> tuple[float, dict[str, Tensor]]:
    pooling, case = case.get("pooling", "cls"), {name: value for name, value in case.items() if name != "pooling"}
    setting = Setting(folder / "corpus", folder / "negatives", start, 0.0, 3, device.type, pooling=pooling)
    loss = setting.loss(**case)
    total, examples = 0.0, np.arange(6)
    with as_in_training(setting.model, precision, padding, device), autocast(precision, device):
        for part in loss("train", loss.draw("train", examples, examples)):
            with torch.autocast(device.type, enabled=False):
                part.backward()
            total += float(part.detach())
    grads = {name: values.grad for name, values in setting.model.named_parameters() if values.grad is not None}
    return total, on_cpu(grads)


@pytest.mark.parametrize("name", LOSSES)
def test_a_rerankers_step_has_the_same_loss_and_gradient(
    folder: Path, tiny_model: Path, name: str, device: torch.device
) -> None:
    loss, expected = of_reranker(folder, tiny_model, LOSSES[name], torch.device("cpu"), "fp32")
    found_loss, found = of_reranker(folder, tiny_model, LOSSES[name], device, "fp32")
    assert found_loss == pytest.approx(loss, rel=5e-5)
    assert_each_close(found, expected, EXACT)
    for padding in ("kept", "none"):
        rounded_loss, rounded = of_reranker(folder, tiny_model, LOSSES[name], device, "bf16", padding)
        assert rounded_loss == pytest.approx(loss, rel=ROUNDED_LOSS)
        assert difference(rounded, expected) <= ROUNDED


@pytest.mark.parametrize("pooling", ["cls", "cosine"])
def test_a_reranker_without_padding_has_the_same_scores(
    folder: Path, tiny_model: Path, device: torch.device, pooling: str
) -> None:
    setting = Setting(folder / "corpus", folder / "negatives", tiny_model, 0.0, 3, device.type, pooling=pooling)
    setting.model.eval()
    with torch.no_grad():
        padded = setting.scores(0, [0, 1, 2, 3, 7])
        with without_padding(setting.model):
            torch.testing.assert_close(setting.scores(0, [0, 1, 2, 3, 7]), padded, rtol=1e-4, atol=1e-4)
