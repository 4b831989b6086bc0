"""A matrix after a bi-encoder: its vectors multiplied, as one more `Dense` module or within the last layer it has.

Shape suffixes: D width of the vectors, F width of the last layer's input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from stillhouse.models.encoder import BiEncoder
from stillhouse.models.encoder_settings import OF_MODULES
from stillhouse.models.towers import BagOfWordsTower, ModuleTower, Tower


def multiply_vectors(encoder: BiEncoder, matrix_DD: Tensor) -> None:
    """Multiply the vectors of both roles by a matrix (float32, on the left), in place, before they are normalised.

    >>> encoder = BiEncoder.load("retriever")  # doctest: +SKIP
    >>> multiply_vectors(encoder, 2 * torch.eye(encoder.width))  # doctest: +SKIP
    """
    for tower in encoder.towers.values():
        _multiply(tower, matrix_DD)  # type: ignore[arg-type]
    of_layer = 0 if encoder.settings.pooling == OF_MODULES else len(matrix_DD)
    encoder.settings = replace(encoder.settings, projection=of_layer, truncate_dim=None)


def _multiply(tower: Tower, matrix_DD: Tensor) -> None:
    if isinstance(tower, ModuleTower):
        from sentence_transformers.sentence_transformer.modules import Dense

        weight = matrix_DD @ torch.eye(tower.width)[: len(matrix_DD)]
        outputs, inputs = weight.shape
        dense: Any = Dense(inputs, outputs, bias=False, activation_function=nn.Identity(), init_weight=weight)
        tower.steps.append(dense)
    elif isinstance(tower, BagOfWordsTower):
        tower.output = _composed(matrix_DD, tower.output.state_dict())
    else:
        last = tower.projection.state_dict() if tower.projection is not None else {"weight": torch.eye(tower.width)}
        tower.projection = _composed(matrix_DD, last)


def _composed(matrix_DD: Tensor, state: Mapping[str, Tensor]) -> nn.Linear:
    """A linear layer [F to D] and then the matrix, as one layer on the CPU; outputs beyond D are cut off, so lost."""
    whole = {name: matrix_DD @ value[: len(matrix_DD)].cpu().float() for name, value in state.items()}
    outputs, inputs = whole["weight"].shape
    layer = nn.Linear(inputs, outputs, bias="bias" in whole)
    layer.load_state_dict(whole)
    return layer
