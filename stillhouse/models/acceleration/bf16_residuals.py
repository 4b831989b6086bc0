"""On a GPU, the states between a Transformer's layers in bf16, where autocast would make them fp32.

Autocast computes matrix products in bf16 but layer normalisation in fp32, so every layer's states are written in fp32,
read again, and converted for the next product. Adding and normalising in bf16 moves half the bytes and converts
nothing. The kernel still adds up means and variances in fp32. A Transformer's last normalisation stays in fp32, and so
do its states.
"""

from contextlib import AbstractContextManager
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stillhouse.models.acceleration.device import computed_in
from stillhouse.models.acceleration.replaced import replaced

DEVICE = "cuda"
PARTS = "Output"
"""The end of the class names of BERT's modules that add a layer's input to its output and normalise the sum, also in
CamemBERT, ELECTRA, RoBERTa and XLM-RoBERTa."""


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
