"""The loss and gradients of a training step, as the training loop computes them over all processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any

import torch
from torch import Tensor, nn

from stillhouse.models.acceleration.processes import GradientSum
from stillhouse.training.loop import back_propagate


def gradients_of(
    losses: Callable[[], Iterable[Tensor]], model: nn.Module, seed: int, precision: str, device: torch.device
) -> dict[str, Any]:
    torch.manual_seed(seed)
    with closing(GradientSum(list(model.parameters()))) as gradients:
        total = back_propagate(lambda step: losses(), 0, precision, device, gradients)
    found = {name: values.grad for name, values in model.named_parameters() if values.grad is not None}
    return {"loss": total, **found}


def assert_same(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float = 1e-5) -> None:
    assert found.keys() == expected.keys()
    scale = max(float(values.abs().max()) for name, values in expected.items() if name != "loss")
    assert scale > 1e-3
    for name, values in expected.items():
        torch.testing.assert_close(
            found[name], values, rtol=0, atol=tolerance * max(1.0, scale), msg=lambda text, name=name: name + text
        )
