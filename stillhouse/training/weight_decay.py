"""Selects the parameters for weight decay: all except biases and those of normalisation layers."""

from __future__ import annotations

from typing import Any

from torch import nn

NORMALISATION = (nn.LayerNorm, nn.RMSNorm)


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The trainable parameters as two groups for an optimiser: with `weight_decay` and without.

    The second group has all parameters with names that end in `bias` and those of LayerNorm and RMSNorm modules, as in
    BERT (Devlin et al. 2019, `exclude_from_weight_decay` of its `optimization.py`) and in the Trainer of transformers,
    which SimLM's code uses. Within a group, parameters keep the model's order. A group may be empty.
    """
    of_norms = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, NORMALISATION)
        for parameter in module.parameters(recurse=False)
    }
    decayed: list[nn.Parameter] = []
    exempt: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (exempt if name.endswith("bias") or id(parameter) in of_norms else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": exempt, "weight_decay": 0.0}]
