"""Linear layers that train in fp32 with oneDNN on AMD processors.

PyTorch computes an fp32 linear layer and both products of its gradient with MKL, which reaches less than half of an AMD
processor's speed; oneDNN reaches nearly all of it. On Intel processors MKL is the fast one, and oneDNN takes up to 1.7
times as long for a weight's gradient, so nothing changes there. Results differ by rounding alone. Under autocast
nothing changes, because bf16 products already use oneDNN.

Shape suffixes: R rows (tokens of a batch), I inputs, O outputs of a layer.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from stillhouse.acceleration.processor import AMD, own_vendor


@contextmanager
def fast_linear_layers(model: nn.Module, device: torch.device, vendor: str | None = None) -> Iterator[None]:
    """Compute the model's linear layers and their gradients with oneDNN until the block ends, if that is faster.

    Weights stay in place, so an optimiser's updates take effect at once. `vendor` is the processor's vendor id; None =
    this machine's. The choice depends on the id and not on a measurement, so a run always gives the same bytes.
    """
    layers = [each for each in model.modules() if type(each) is nn.Linear and "forward" not in each.__dict__]
    layers = layers if can_compute(device) and (vendor or own_vendor()) == AMD else []
    for layer in layers:
        # Set on the instance, so other code can still read or save the layer.
        layer.__dict__["forward"] = fast_forward(layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


def can_compute(device: torch.device) -> bool:
    """Whether oneDNN can compute fp32 on the device."""
    x86 = device.type == "cpu" and platform.machine() in ("x86_64", "AMD64")
    return x86 and torch.backends.mkldnn.is_available()


def fast_forward(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    """The layer's `forward`, with oneDNN if it is in fp32."""

    def forward(input: Tensor) -> Tensor:
        fp32 = input.dtype == layer.weight.dtype == torch.float32
        if not fp32 or not input.numel() or torch.is_autocast_enabled(input.device.type):
            return nn.functional.linear(input, layer.weight, layer.bias)
        output: Tensor = _Linear.apply(input, layer.weight, layer.bias)
        return output

    return forward


class _Linear(torch.autograd.Function):
    """`input @ weight.T + bias` and its gradients."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight_OI)
        return product(input, weight_OI, bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight_OI = ctx.saved_tensors
        of_input, of_weight, of_bias = ctx.needs_input_grad
        gradient_RO = gradient.reshape(-1, len(weight_OI))
        input_RI = input.reshape(-1, weight_OI.shape[1])
        return (
            product(gradient_RO, weight_OI.T).view(input.shape) if of_input else None,
            product(gradient_RO.T, input_RI.T) if of_weight else None,
            gradient_RO.sum(0) if of_bias else None,
        )


def product(left_RI: Tensor, right_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """`left @ right.T + bias`, [R, O], float32; `left` may have more dimensions before the last."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(left_RI, right_OI, bias_O, "none", [], "")
    return result
