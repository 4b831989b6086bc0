"""A matrix after a bi-encoder: its vectors multiplied, as one more `Dense` module or within the last layer it has.

Shape suffixes: D width of the vectors, F width of the last layer's input.
"""

from __future__ import annotations

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

        whole = _composed(matrix_DD, torch.eye(tower.width), None)
        dense: Any = Dense(
            whole.in_features,
            whole.out_features,
            bias=False,
            activation_function=nn.Identity(),
            init_weight=whole.weight,
        )
        tower.steps.append(dense)
    elif isinstance(tower, BagOfWordsTower):
        tower.output = _composed(matrix_DD, tower.output.weight, tower.output.bias)
    elif tower.projection is not None:
        tower.projection = _composed(matrix_DD, tower.projection.weight, tower.projection.bias)
    else:
        tower.projection = _composed(matrix_DD, torch.eye(tower.width), None)


def _composed(matrix_DD: Tensor, weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A layer [F to D] and then the matrix, as one layer; the layer's outputs beyond D, which are cut off, are lost."""
    width = len(matrix_DD)
    layer = nn.Linear(weight.shape[1], width, bias=bias is not None)
    state = {"weight": matrix_DD @ weight[:width].float()} | (
        {} if bias is None else {"bias": matrix_DD @ bias[:width].float()}
    )
    layer.load_state_dict(state)
    return layer
