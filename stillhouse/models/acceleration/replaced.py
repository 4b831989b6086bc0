"""Gives modules of a model another `forward` for a while, which computes faster.

Linear layers computed with oneDNN on x86 CPUs: packed for inference, and in training on AMD CPUs.

PyTorch computes an fp32 linear layer and both products of its gradient with MKL, which reaches less than half of an AMD
processor's speed; oneDNN reaches nearly all of it. On Intel processors MKL is the fast one, and oneDNN takes up to 1.7
times as long for a weight's gradient, so training stays with MKL there. For inference, weights are packed in oneDNN's
memory layout on every x86 CPU; in bf16, a packed weight is not cast again in every batch. Results differ from the
plain layer by rounding alone. Training under autocast does not change, because bf16 products already use oneDNN.

On a GPU, the states between a Transformer's layers in bf16, where autocast would make them fp32.

Autocast computes matrix products in bf16 but layer normalisation in fp32, so every layer's states are written in fp32,
read again, and converted for the next product. Adding and normalising in bf16 moves half the bytes and converts
nothing. The kernel still adds up means and variances in fp32. A Transformer's last normalisation stays in fp32, and so
do its states.

Shape suffixes: R rows (tokens of a batch), I inputs, O outputs of a layer.
"""

import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from stillhouse.models.acceleration.device import AMD, computed_in, own_vendor

M = TypeVar("M", bound=nn.Module)
EVEN = 8
"""Queries are padded to a multiple of this and vectors to at least this: a single one would be rounded differently."""
DEVICE = "cuda"
PARTS = "Output"
"""The end of the class names of BERT's modules that add a layer's input to its output and normalise the sum, also in
CamemBERT, ELECTRA, RoBERTa and XLM-RoBERTa."""


def replace_forward(modules: Iterable[M], forward: Callable[[M], Callable[..., Any]]) -> list[M]:
    """Give each module that has not been given one yet `forward(module)`, and return these modules."""
    chosen = [module for module in modules if "forward" not in module.__dict__]
    for module in chosen:
        # Set on the instance, so other code can still use, read or save the module, and a copy gets its own.
        module.__dict__["forward"] = forward(module)
    return chosen


@contextmanager
def replaced(modules: Iterable[M], forward: Callable[[M], Callable[..., Any]]) -> Iterator[None]:
    """As `replace_forward`, until the block ends."""
    chosen = replace_forward(modules, forward)
    try:
        yield
    finally:
        for module in chosen:
            del module.__dict__["forward"]


def packed_linears(model: nn.Module, dtype: torch.dtype, device: torch.device) -> AbstractContextManager[None]:
    """Compute the model's linear layers in `dtype` with packed weights until the block ends; on GPUs nothing changes.

    `dtype` is float32 or bfloat16. Changes of weights within the block have no effect. Gradients do not flow.
    """
    layers = _linear_layers(model) if can_pack(dtype, device) else []
    return replaced(layers, partial(packed_forward, dtype=dtype))


def keep_packed(model: nn.Module, device: torch.device) -> None:
    """Pack the layers of a model that only computes in fp32, permanently."""
    if can_pack(torch.float32, device):
        replace_forward(_linear_layers(model.eval()), partial(packed_forward, dtype=torch.float32))


def fast_linear_layers(
    model: nn.Module, device: torch.device, vendor: str | None = None
) -> AbstractContextManager[None]:
    """Compute the model's linear layers and their gradients with oneDNN until the block ends, if that is faster.

    Weights stay in place, so an optimiser's updates take effect at once. `vendor` is the CPU's vendor id; None =
    this machine's. The choice depends on the id and not on a measurement, so a run always gives the same bytes.
    """
    faster = can_pack(torch.float32, device) and (vendor or own_vendor()) == AMD
    return replaced(_linear_layers(model) if faster else [], fast_forward)


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether oneDNN computes with weights of the type on this machine."""
    x86 = device.type == "cpu" and platform.machine() in ("x86_64", "AMD64")
    if not x86 or not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _linear_layers(model: nn.Module) -> list[nn.Linear]:
    return [layer for layer in model.modules() if type(layer) is nn.Linear]


def packed_forward(layer: nn.Linear, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The layer's `forward` with a packed copy of its weights."""
    with torch.inference_mode():
        weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach().to(dtype).contiguous(), None)
        bias = None if layer.bias is None else layer.bias.detach().to(dtype)
    return lambda input: product(input.to(dtype), weight, bias)


def fast_forward(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    """The layer's `forward`, with oneDNN if it is in fp32."""

    def forward(input: Tensor) -> Tensor:
        fp32 = input.dtype == layer.weight.dtype == torch.float32
        if not fp32 or not input.numel() or torch.is_autocast_enabled(input.device.type):
            return nn.functional.linear(input, layer.weight, layer.bias)
        return _Linear.apply(input, layer.weight, layer.bias)

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
    """`left @ right.T + bias`, [R, O]; `left` may have more dimensions before the last, `right` may be packed."""
    return torch.ops.mkldnn._linear_pointwise(left_RI, right_OI, bias_O, "none", [], "")


def bf16_residuals(model: nn.Module, precision: str, device: torch.device) -> AbstractContextManager[None]:
    """Compute a model's residual sums in bf16 until the block ends, if this is a GPU and `precision` gives bf16."""
    shorter = device.type == DEVICE and computed_in(precision, device) == torch.bfloat16
    return replaced(_parts(model) if shorter else [], partial(MethodType, added_and_normalised))


def _parts(model: nn.Module) -> list[nn.Module]:
    """The modules to replace: all but the last one of each Transformer."""
    found: list[nn.Module] = []
    for module in model.modules():
        layers = getattr(module, "layer", None)
        if isinstance(layers, nn.ModuleList):
            sums = [part for part in layers.modules() if _adds_and_normalises(part)]
            found += sums[:-1]
    return found


def _adds_and_normalises(part: nn.Module) -> bool:
    named = type(part).__name__.endswith(PARTS)
    return named and all(hasattr(part, name) for name in ("dense", "dropout", "LayerNorm"))


def added_and_normalised(part: Any, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
    """`LayerNorm(dropout(dense(hidden_states)) + input_tensor)` in the precision of the product."""
    made = part.dropout(part.dense(hidden_states))
    norm = part.LayerNorm
    with torch.autocast(made.device.type, enabled=False):
        weight, bias = norm.weight.to(made.dtype), norm.bias.to(made.dtype)
        normalised: Tensor = functional.layer_norm(
            made + input_tensor.to(made.dtype), norm.normalized_shape, weight, bias, norm.eps
        )
    return normalised
