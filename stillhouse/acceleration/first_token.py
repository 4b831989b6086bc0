"""A last layer that computes the first token alone, for whoever reads nothing else: [CLS] vectors, scores of pairs.

Every token is a key and a value of the last attention, but of its queries and of all that follows the first token's
alone is read. Five sixths of the layer's products are left out, with their gradients: a seventh of those of a
Transformer of six layers, a fourteenth of one of twelve. Results are the same but for rounding, and for dropout, which
draws other random numbers.

Shape suffixes: B texts, L tokens of the longest, T tokens of all texts, F tokens of each that are computed (1 of a row,
else 8), D hidden width, H heads, K width of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from stillhouse.acceleration.unpadded import Row, kind_of

MODEL_TYPES = ("bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")
"""The models whose last layer is known here; others compute every token."""
FIRST = 8
"""Tokens of a padded text that are computed: the first and those behind it. A matrix of one row is multiplied by other
code than one of many, so that a text by itself would have other last bits than among others."""

Attend = Callable[[Tensor, Tensor, Tensor, int, nn.Dropout], Tensor]
"""Attention of queries [B, F, D] to keys and values [B, L, D] or, of a row, [1, T, D]; a number of heads, dropout."""


def can_end_in_first_token(model: PreTrainedModel) -> bool:
    """Prepares a model, with a head or without, for `model(..., first_token_alone=True)`, and says whether it could.

    Without a head, the states are [B, F, D] then, of which `states[:, 0]` are meant; heads that score texts read those
    alone anyway. Without the option the model computes as before. Others than `MODEL_TYPES` stay unchanged.
    """
    if kind_of(model) not in MODEL_TYPES:
        return False
    base: Any = model.base_model
    last = (base.transformer if model.config.model_type == "distilbert" else base.encoder).layer[-1]
    # A method of the instance, so that a copy of the model has its own, and files and names stay unchanged.
    last.__dict__["forward"] = MethodType(_forward, last)
    return True


def _forward(
    layer: Any,
    states: Tensor,
    attention_mask: Tensor | None = None,
    *others: Any,
    first_token_alone: bool = False,
    row: Row | None = None,
    **options: Any,
) -> Tensor:
    """The layer's states, [B, F, D] of the first tokens alone; `states` are [B, L, D], or [1, T, D] of a row."""
    if not first_token_alone:
        options |= {} if row is None else {"row": row}
        every: Tensor = type(layer).forward(layer, states, attention_mask, *others, **options)
        return every
    compute = _distilbert if hasattr(layer, "sa_layer_norm") else _bert
    if row is not None:
        return compute(layer, row.first(states), states, _attend(row.kept_BL[:, None, None], row.pad))
    assert attention_mask is None or attention_mask.ndim == 4, attention_mask.shape
    mask = None if attention_mask is None else attention_mask[:, :, :FIRST]
    return compute(layer, states[:, :FIRST], states, _attend(mask, lambda each: each))


def _attend(mask_B1FL: Tensor | None, padded: Callable[[Tensor], Tensor]) -> Attend:
    """Attention to the tokens that a mask keeps; `padded` makes keys and values [B, L, D]."""

    def attend(query: Tensor, key: Tensor, value: Tensor, heads: int, dropout: nn.Dropout) -> Tensor:
        query_BHFK, key_BHLK, value_BHLK = (
            each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in (query, padded(key), padded(value))
        )
        share = dropout.p if dropout.training else 0.0
        read = scaled_dot_product_attention(query_BHFK, key_BHLK, value_BHLK, attn_mask=mask_B1FL, dropout_p=share)
        return read.transpose(1, 2).flatten(2)

    return attend


def _bert(layer: Any, first_BFD: Tensor, states: Tensor, attend: Attend) -> Tensor:
    """The layer of BERT, which CamemBERT, ELECTRA, RoBERTa and XLM-RoBERTa have too."""
    own = layer.attention.self
    read = attend(own.query(first_BFD), own.key(states), own.value(states), own.num_attention_heads, own.dropout)
    result: Tensor = layer.feed_forward_chunk(layer.attention.output(read, first_BFD))
    return result


def _distilbert(layer: Any, first_BFD: Tensor, states: Tensor, attend: Attend) -> Tensor:
    own = layer.attention
    read = attend(own.q_lin(first_BFD), own.k_lin(states), own.v_lin(states), own.n_heads, own.dropout)
    attended = layer.sa_layer_norm(own.out_lin(read) + first_BFD)
    result: Tensor = layer.output_layer_norm(layer.ffn(attended) + attended)
    return result
