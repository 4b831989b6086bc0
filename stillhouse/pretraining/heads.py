"""Where a masked language model keeps its layers, embeddings and head, by model type.

The head is split into its transform and its output matrix, because the loss processes the logits in chunks of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import gelu

from stillhouse.core.errors import InputError

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Family:
    """The parts of a model type, as functions of the masked language model.

    `layers`: its Transformer layers; `embed`: from ids [B, L] to the first layer's input [B, L, D]; `positions`: from a
    length L to the position embeddings [L, D] of a passage without padding, as wide as the layers; `transform`: the
    head before the output matrix, from states [N, D] to [N, E], where E is the width of the word embeddings.

    Two parts that BERT lacks: `final_norm` follows the last layer, and `rotary` rotates the queries and keys of every
    layer: `rotary(states [B, L, D], positions [1, L], layer.attention_type)` returns cosines and sines [1, L, K], with
    K the width of a head.
    """

    layers: Callable[[Any], nn.ModuleList]
    embed: Callable[[Any], Function]
    positions: Callable[[Any], Callable[[int], Tensor]]
    transform: Callable[[Any], Function]
    final_norm: Callable[[Any], nn.Module] = lambda model: nn.Identity()
    rotary: Callable[[Any], nn.Module | None] = lambda model: None


def _electra_embed(model: Any) -> Function:
    base = model.electra
    if not hasattr(base, "embeddings_project"):
        return base.embeddings
    return lambda ids_BL: base.embeddings_project(base.embeddings(ids_BL))


def _positions(model: Any, first: int = 0) -> Callable[[int], Tensor]:
    """`first` is the first token's row in the table (in RoBERTa it follows the padding's row)."""
    table = model.base_model.embeddings.position_embeddings
    return lambda length: table.weight[first : first + length]


def _electra_positions(model: Any) -> Callable[[int], Tensor]:
    table = _positions(model)
    if not hasattr(model.electra, "embeddings_project"):
        return table
    # The projection's bias belongs to the sum of all embeddings, not to the position alone.
    return lambda length: table(length) @ model.electra.embeddings_project.weight.T


def _no_positions(model: Any) -> Callable[[int], Tensor]:
    """A model with rotary positions adds nothing to its embeddings."""
    return lambda length: model.get_input_embeddings().weight.new_zeros(length, model.config.hidden_size)


def _roberta_transform(model: Any) -> Function:
    head = model.lm_head
    return lambda states_ND: head.layer_norm(gelu(head.dense(states_ND)))


def _distilbert_transform(model: Any) -> Function:
    return lambda states_ND: model.vocab_layer_norm(model.activation(model.vocab_transform(states_ND)))


ROBERTA = Family(
    layers=lambda model: model.base_model.encoder.layer,
    embed=lambda model: model.base_model.embeddings,
    positions=lambda model: _positions(model, model.config.pad_token_id + 1),
    transform=_roberta_transform,
)
FAMILIES: dict[str, Family] = {
    "bert": Family(
        layers=lambda model: model.bert.encoder.layer,
        embed=lambda model: model.bert.embeddings,
        positions=_positions,
        transform=lambda model: model.cls.predictions.transform,
    ),
    "electra": Family(
        layers=lambda model: model.electra.encoder.layer,
        embed=_electra_embed,
        positions=_electra_positions,
        transform=lambda model: model.generator_predictions,
    ),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "distilbert": Family(
        layers=lambda model: model.distilbert.transformer.layer,
        embed=lambda model: model.distilbert.embeddings,
        positions=_positions,
        transform=_distilbert_transform,
    ),
    "modernbert": Family(
        layers=lambda model: model.model.layers,
        embed=lambda model: model.model.embeddings,
        positions=_no_positions,
        transform=lambda model: model.head,
        final_norm=lambda model: model.model.final_norm,
        rotary=lambda model: model.model.rotary_emb,
    ),
}


def family_of(model: PreTrainedModel) -> Family:
    """Raises `InputError` for an unsupported model type."""
    kind = model.config.model_type
    if kind not in FAMILIES:
        raise InputError(f"pre-training supports the model types {', '.join(sorted(FAMILIES))}, not {kind!r}")
    return FAMILIES[kind]


def last_states(model: PreTrainedModel, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
    """The last hidden states [B, L, D] of the encoder."""
    states_BLD: Tensor = model.base_model(input_ids=ids_BL, attention_mask=attention_BL.long()).last_hidden_state
    return states_BLD


def output_matrix(model: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """The output weights [V, E], often tied to the word embeddings, and the bias [V], zeros if the model has none."""
    output: Any = model.get_output_embeddings()
    bias_V = output.bias
    return output.weight, output.weight.new_zeros(len(output.weight)) if bias_V is None else bias_V


def head_parameters(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """The head's parameters by name, without those shared with the encoder."""
    shared = {id(parameter) for parameter in model.base_model.parameters()}
    named = model.named_parameters(remove_duplicate=False)
    return {name: parameter for name, parameter in named if id(parameter) not in shared}
