"""Linear layers with weights in oneDNN's memory layout, for inference on x86 processors.

PyTorch computes a linear layer in fp32 with MKL, which reaches less than half of an AMD processor's speed; oneDNN
reaches nearly all of it. In bf16, a packed weight is not cast again in every batch. Results differ from the plain layer
by rounding alone.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def packed_linears(model: nn.Module, dtype: torch.dtype, device: torch.device) -> Iterator[None]:
    """Compute the model's linear layers in `dtype` with packed weights until the block ends; on GPUs nothing changes.

    `dtype` is float32 or bfloat16. Changes of weights within the block have no effect. Gradients do not flow.
    """
    packed = pack(model, dtype) if can_pack(dtype, device) else []
    try:
        yield
    finally:
        for layer in packed:
            del layer.__dict__["forward"]


def keep_packed(model: nn.Module, device: torch.device) -> None:
    """Pack the layers of a model that only computes in fp32, permanently."""
    if can_pack(torch.float32, device):
        pack(model.eval(), torch.float32)


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this machine can compute packed weights of the type."""
    x86 = device.type == "cpu" and platform.machine() in ("x86_64", "AMD64")
    if not x86 or not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def pack(model: nn.Module, dtype: torch.dtype) -> list[nn.Linear]:
    """Pack every linear layer that is not packed yet, and return these layers."""
    layers = [layer for layer in model.modules() if type(layer) is nn.Linear and "forward" not in layer.__dict__]
    for layer in layers:
        # Set on the instance, so other code can still read the layer and its weights.
        layer.__dict__["forward"] = packed_forward(layer, dtype)
    return layers


def packed_forward(layer: nn.Linear, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The layer's `forward` with a packed copy of its weights."""
    with torch.inference_mode():
        weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach().to(dtype).contiguous(), None)
        bias = None if layer.bias is None else layer.bias.detach().to(dtype)

    def forward(input: Tensor) -> Tensor:
        output: Tensor = torch.ops.mkldnn._linear_pointwise(input.to(dtype), weight, bias, "none", [], "")
        return output

    return forward
