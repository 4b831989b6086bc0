"""A last layer that computes only the first token, for models that read nothing else: [CLS] vectors, pair scores.

In the last layer, every token is a key and a value, but the query and everything after the attention are needed for the
first token alone. This saves five sixths of the layer's products and their gradients: a seventh of the products of a
Transformer with six layers, a fourteenth with twelve. Results are the same except for rounding, and except for dropout,
which draws other random numbers.

Shape suffixes: B texts, L tokens of the longest, T tokens of all texts, F computed tokens of each text (1 in a row,
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
"""The model types with a known last layer; others compute every token."""
FIRST = 8
"""The number of leading tokens computed for a padded text. A matrix with one row is multiplied by other code than one
with many, so a text alone would differ in its last bits from the same text in a batch."""

Attend = Callable[[Tensor, Tensor, Tensor, int, nn.Dropout], Tensor]
"""Attention of queries [B, F, D] to keys and values [B, L, D], or [1, T, D] in a row; a number of heads, dropout."""


def can_end_in_first_token(model: PreTrainedModel) -> bool:
    """Prepare a model, with or without a head, for `model(..., first_token_alone=True)`; return whether it could.

    Without a head, the option gives states [B, F, D], of which only `states[:, 0]` count; heads that score texts read
    only those. Without the option, the model computes as before. Models not in `MODEL_TYPES` stay unchanged.
    """
    if kind_of(model) not in MODEL_TYPES:
        return False
    base: Any = model.base_model
    last = (base.transformer if model.config.model_type == "distilbert" else base.encoder).layer[-1]
    # Set on the instance, so a copy of the model gets its own method, and files and names stay unchanged.
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
    """The layer's states, or [B, F, D] of the first tokens alone; `states` are [B, L, D], or [1, T, D] in a row."""
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
    """Attention to the tokens that a mask keeps; `padded` turns keys and values into [B, L, D]."""

    def attend(query: Tensor, key: Tensor, value: Tensor, heads: int, dropout: nn.Dropout) -> Tensor:
        query_BHFK, key_BHLK, value_BHLK = (
            each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in (query, padded(key), padded(value))
        )
        share = dropout.p if dropout.training else 0.0
        read = scaled_dot_product_attention(query_BHFK, key_BHLK, value_BHLK, attn_mask=mask_B1FL, dropout_p=share)
        return read.transpose(1, 2).flatten(2)

    return attend


def _bert(layer: Any, first_BFD: Tensor, states: Tensor, attend: Attend) -> Tensor:
    """The layer of BERT, also used by CamemBERT, ELECTRA, RoBERTa and XLM-RoBERTa."""
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
