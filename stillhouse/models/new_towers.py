"""What a training adds to a bi-encoder: a matrix after its vectors, or a smaller tower for queries.

The matrix is one more `Dense` module, or within the last layer that a tower has. The smaller tower has some of the
passages' layers, or is another model with a projection. A question waits for the query tower alone, so a small one
makes answers cheaper while the index stays that of the large model (LEAF, Vujanic and Rueckstiess 2025, "LEAF:
Knowledge Distillation of Text Embedding Models with Teacher-Aligned Representations").

Shape suffixes: D width of the (large model's) vectors, F width of the last layer's input, N texts, S width of the small
model's vectors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.acceleration.unpadded import can_end_in_first_token
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.encoder_settings import OF_MODULES
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.towers import BagOfWordsTower, ModuleTower, Tower, read_modules

RIDGE = 1e-3
"""How strongly the first projection is held near zero, as a share of the mean variance of the small vectors."""


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


def keep_layers(encoder: BiEncoder, count: int) -> None:
    """Keep `count` layers of the query tower, evenly spaced with the first and the last.

    Raises `InputError` for a model of another build than BERT's, and if it has no more layers than that.
    """
    transformer: Any = getattr(encoder.tower("query"), "encoder", None)
    inner: Any = getattr(transformer, "encoder", None)
    layers = getattr(inner, "layer", None)
    if not isinstance(layers, nn.ModuleList):
        raise InputError("layers: only layers of BERT-like models can be left out; give a smaller model as --small")
    if count >= len(layers):
        raise InputError(f"layers: the model has {len(layers)}; keep fewer, such as {max(1, len(layers) // 2)}")
    kept = np.linspace(0, len(layers) - 1, count).round().astype(int)
    inner.layer = nn.ModuleList(layers[place] for place in kept.tolist())
    transformer.config.num_hidden_layers = count
    can_end_in_first_token(transformer)  # prepares the layer that is the last one now


def with_small_model(
    encoder: BiEncoder,
    large: Path,
    small: Path,
    texts: Sequence[str],
    vectors_ND: NDArray[np.float32],
    context: Context,
) -> BiEncoder:
    """The bi-encoder `encoder`, read from `large`, with the model in `small` for its queries.

    That ends in a projection to the bi-encoder's width: the ridge regression of the large model's vectors of some
    texts, so training starts close to them. The prompt and length of queries are those of `small`.
    """
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    own = BiEncoder.load(small, truncate_dim=None)
    towers, (queries, normalize) = read_modules(large)[0], read_modules(small)
    small_NS = encode(own, own.queries(texts), context, "fitting the projection", InferenceConfig())
    weights_DS, bias_D = ridge(small_NS.astype(np.float64), vectors_ND.astype(np.float64))
    projection = Dense(
        own.width,
        len(bias_D),
        activation_function=nn.Identity(),
        init_weight=torch.from_numpy(weights_DS).float(),
        init_bias=torch.from_numpy(bias_D).float(),
    )
    steps = [*queries.get("query", queries["passage"]).steps, *([Normalize()] if normalize else []), projection]
    settings = replace(
        encoder.settings,
        pooling=OF_MODULES,
        towers="separate",
        query_prompt=own.settings.query_prompt,
        query_length=own.settings.query_length,
    )
    return BiEncoder({"passage": towers["passage"], "query": ModuleTower(steps)}, towers["passage"].tokenizer, settings)


def ridge(from_NS: NDArray[np.float64], to_ND: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights [D, S] and bias [D] that map the rows of `from_NS` nearest to those of `to_ND`."""
    mean_S, mean_D = from_NS.mean(axis=0), to_ND.mean(axis=0)
    from_NS, to_ND = from_NS - mean_S, to_ND - mean_D
    products_SS = from_NS.T @ from_NS
    products_SS += RIDGE * np.trace(products_SS) / len(products_SS) * np.eye(len(products_SS))
    weights_DS: Any = np.linalg.solve(products_SS, from_NS.T @ to_ND).T
    return weights_DS, mean_D - weights_DS @ mean_S
