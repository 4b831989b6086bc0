"""Whether a GPU's gradients are those of the CPU: norms of differences, as shares of a gradient's own norm."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

Gradients = Mapping[str, Tensor]
"""Gradients by the names of their parameters, in float64 on the CPU."""


def gradients_of(module: nn.Module) -> dict[str, Tensor]:
    """The gradients of a module's parameters, without those that have none."""
    found = {name: values.grad for name, values in module.named_parameters() if values.grad is not None}
    return on_cpu(found)


def on_cpu(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values in float64 on the CPU, where they can be compared."""
    return {name: values.detach().cpu().double() for name, values in found.items()}


def norm(values: Gradients) -> float:
    """The norm of all values together."""
    return float(torch.stack([each.square().sum() for each in values.values()]).sum().sqrt())


def difference(found: Gradients, expected: Gradients) -> float:
    """The norm of the difference of two whole gradients, as a share of the second one's norm."""
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    assert all(bool(values.isfinite().all()) for values in found.values())
    return norm({name: found[name] - values for name, values in expected.items()}) / norm(expected)


def assert_each_close(found: Gradients, expected: Gradients, share: float) -> None:
    """Every parameter's gradient differs by at most `share` of its norm, and a hundredth of that of all gradients.

    Some gradients are nothing but rounding, such as those of keys' biases; the second term is for them.
    """
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    every = norm(expected)
    assert every > 0
    for name, values in expected.items():
        distance, own = float((found[name] - values).norm()), float(values.norm())
        assert distance <= share * (own + every / 100), f"{name}: {distance:.2g} of {own:.2g}, all {every:.2g}"
