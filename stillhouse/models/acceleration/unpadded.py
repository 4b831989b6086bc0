"""BERT-like models without unneeded work: no padding, and a last layer that computes only the first token.

Outside attention a Transformer computes every token by itself, so the tokens of many texts can form one row, with
attention within each text. Callers notice nothing: the states come back as [B, L, D], with zeros at padding.

[CLS] vectors and pair scores read nothing but the first token. In the last layer, every token is a key and a value, but
the query and everything after the attention are needed for the first token alone. This saves five sixths of the layer's
products and their gradients: a seventh of the products of a Transformer with six layers, a fourteenth with twelve.

Both compute with the parameters and modules of transformers' own model. Results equal its own except for rounding, and
except for dropout, which draws other random numbers.

Shape suffixes: B texts, L tokens of the longest, T tokens of all texts, F computed tokens of each text (1 in a row,
else 8), D hidden width, H heads, K width of a head.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from types import MethodType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from stillhouse.core.errors import InputError
from stillhouse.models.acceleration.device import on_device
from stillhouse.models.acceleration.replaced import replaced

IMPLEMENTATION = "stillhouse_unpadded"
"""The name of this file's attention in transformers."""
MODEL_TYPES = ("bert", "camembert", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta")
"""The model types with replaceable attention and positions as an input."""
WIDEST_HEAD = 192
"""The largest width of a head for which the flash kernel has a backward pass on every GPU."""
WITH_FIRST_TOKEN = ("bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")
"""The model types with a known last layer; others compute every token."""
FIRST = 8
"""The number of leading tokens computed for a padded text. A matrix with one row is multiplied by other code than one
with many, so a text alone would differ in its last bits from the same text in a batch."""

Attend = Callable[[Tensor, Tensor, Tensor, int, nn.Dropout], Tensor]
"""Attention of queries [B, F, D] to keys and values [B, L, D], or [1, T, D] in a row; a number of heads, dropout."""


def kind_of(model: PreTrainedModel) -> str:
    """The type of a model, as in `MODEL_TYPES`; decoders get a different name."""
    config: Any = model.config
    return f"{config.model_type} (decoder)" if getattr(config, "is_decoder", False) else str(config.model_type)


def leaves_padding_out(model: nn.Module, padding: str, device: torch.device) -> bool:
    """Whether training with the setting `padding` computes no padding; never with gradient checkpointing.

    "auto" computes none on a CPU, where a training step takes 6 to 9 % less time than with batches of similar lengths,
    but keeps it on a GPU, where pre-training on texts of about equal length is up to 10 % faster with it. Raises
    `InputError` for the setting "none" with a model type that is not in `MODEL_TYPES`.
    """
    if any(getattr(part, "gradient_checkpointing", False) for part in model.modules()):
        return False
    unknown = sorted({kind_of(each) for each in transformers_in(model)} - {*MODEL_TYPES})
    if unknown and padding == "none":
        known = ", ".join(MODEL_TYPES)
        raise InputError(f"padding can be left out for {known}, but not for {unknown[0]}; set padding: kept")
    return padding == "none" or (padding == "auto" and device.type == "cpu" and not unknown)


def without_padding(model: nn.Module) -> AbstractContextManager[None]:
    """Compute no padding in the model's Transformers until the block ends; all must be of `MODEL_TYPES`."""
    _register()
    return replaced(transformers_in(model), unpadded_forward)


def transformers_in(model: nn.Module) -> list[PreTrainedModel]:
    """The Transformers without a head in a model, including the model itself, but none inside another one."""
    found = [each for each in model.modules() if isinstance(each, PreTrainedModel) and each.base_model is each]
    inside = {part for each in found for part in each.modules() if part is not each}
    return [each for each in found if each not in inside]


@dataclass(frozen=True)
class Row:
    """The tokens of a batch's texts, one after another: `place_T` int64 are their places among [B * L] padded ones.

    `kept_BL` is true at tokens and false at padding.
    """

    place_T: Tensor
    kept_BL: Tensor
    lengths: tuple[int, ...]
    longest: int

    @classmethod
    def of(cls, attention_BL: Tensor) -> Self:
        """The row of texts that are padded at their ends. This waits for the device once per batch."""
        longest = attention_BL.shape[1]
        lengths_B = attention_BL.sum(dim=1)
        lengths = tuple(lengths_B.tolist())
        kept_BL = torch.arange(longest, device=attention_BL.device) < lengths_B[:, None]
        assert min(lengths) > 0, "a text has no token"
        place_T = torch.nonzero_static(kept_BL.flatten(), size=sum(lengths)).squeeze(1)
        return cls(place_T, kept_BL, lengths, longest)

    @cached_property
    def bounds(self) -> Tensor:
        """Where the texts begin in the row, and its end: int32 [B + 1], on the device. All layers share it."""
        return on_device(torch.tensor([0, *accumulate(self.lengths)], dtype=torch.int32), self.place_T.device)

    def pack(self, padded_BL: Tensor) -> Tensor:
        """The values at the texts' tokens, [1, T]."""
        return padded_BL.flatten().index_select(0, self.place_T).unsqueeze(0)

    def first(self, states_1TD: Tensor) -> Tensor:
        """The states of the texts' first tokens, [B, 1, D]."""
        return states_1TD[0].index_select(0, self.bounds[:-1]).unsqueeze(1)

    def pad(self, states_1TD: Tensor) -> Tensor:
        """The states as [B, L, D], zeros at padding."""
        count, width = len(self.lengths), states_1TD.shape[-1]
        states_RD = states_1TD.new_zeros(count * self.longest, width)
        return states_RD.index_copy(0, self.place_T, states_1TD[0]).unflatten(0, (count, self.longest))


def unpadded_forward(encoder: PreTrainedModel) -> Callable[..., Any]:
    """The `forward` of a Transformer without a head that computes a padded batch as one row."""
    padded = encoder.forward

    def forward(input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None, **options: Any) -> Any:
        assert options.get("position_ids") is None and options.get("inputs_embeds") is None
        row = Row.of(attention_mask)
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}  # some models have none
        if len(row.place_T) == attention_mask.numel():
            return padded(input_ids, attention_mask=None, **types, **options)
        options |= {name: row.pack(types_BL) for name, types_BL in types.items()}
        options["position_ids"] = row.pack(_positions(encoder, input_ids))
        with _attention_of(encoder):
            output = padded(input_ids=row.pack(input_ids), attention_mask=None, row=row, **options)
        if options.get("first_token_alone"):  # the states were already taken out of the row
            return output
        output["last_hidden_state"] = row.pad(output.last_hidden_state)
        if output.get("hidden_states") is not None:
            output["hidden_states"] = tuple(row.pad(states) for states in output.hidden_states)
        if output.get("pooler_output") is not None:  # was computed for the first text alone
            pooler: Any = encoder.pooler
            output["pooler_output"] = pooler(output.last_hidden_state)
        return output

    return forward


def _positions(encoder: PreTrainedModel, ids_BL: Tensor) -> Tensor:
    """The rows [B, L] of the position table, as the model itself counts them."""
    embeddings: Any = encoder.embeddings
    if hasattr(embeddings, "create_position_ids_from_input_ids"):  # RoBERTa counts from after the padding's row
        return embeddings.create_position_ids_from_input_ids(ids_BL, embeddings.padding_idx)
    return torch.arange(ids_BL.shape[1], device=ids_BL.device).expand_as(ids_BL)


@contextmanager
def _attention_of(encoder: PreTrainedModel) -> Iterator[None]:
    """Select this file's attention only while the model computes: the configuration is shared and saved to files."""
    kept = encoder.config._attn_implementation
    encoder.config._attn_implementation = IMPLEMENTATION
    try:
        yield
    finally:
        encoder.config._attn_implementation = kept


def attention(
    module: nn.Module,
    query_1HTK: Tensor,
    key_1HTK: Tensor,
    value_1HTK: Tensor,
    attention_mask: None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    row: Row,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention within the texts of a row, [1, T, H, K], in the form that transformers calls.

    With `sliding_window`, a token attends to tokens fewer than this many places away (ModernBERT's local layers).
    """
    inputs = (query_1HTK, key_1HTK, value_1HTK)
    longest = max(row.lengths)
    near = sliding_window if sliding_window is not None and longest > sliding_window else None
    if (precision := _flash_precision(query_1HTK)) is not None:
        # All texts in one call of the flash kernel. PyTorch's nested tensors, which call it too, take longer to make.
        query, key, value = (each[0].to(precision).transpose(0, 1) for each in inputs)
        window = {} if near is None else {"window_size_left": near - 1, "window_size_right": near - 1}
        read_THK, *_ = torch.ops.aten._flash_attention_forward(
            query, key, value, row.bounds, row.bounds, longest, longest, dropout, False, False, scale=scaling, **window
        )
        return read_THK.unsqueeze(0), None
    # One call per text: on a CPU, where a text is enough work for a call, and where one call cannot do it.
    place_L = torch.arange(longest if near else 0, device=query_1HTK.device)
    seen_LL = (place_L[:, None] - place_L).abs() < (near or 0)
    read = []
    for length, query, key, value in zip(row.lengths, *(each.split(row.lengths, dim=2) for each in inputs)):
        mask = seen_LL[:length, :length] if near and length > near else None
        read.append(scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling))
    return torch.cat(read, dim=2).transpose(1, 2), None


def _flash_precision(query_1HTK: Tensor) -> torch.dtype | None:
    """The precision in which the flash kernel computes this attention; None: it cannot.

    It needs an NVIDIA GPU of the Ampere generation or later, and half precision. PyTorch's kernel for rows in fp32 is
    not used, because it gives every text of a batch the same dropout.
    """
    width = query_1HTK.shape[-1]
    if not query_1HTK.is_cuda or width % 8 or width > WIDEST_HEAD or not _has_flash(query_1HTK.device):
        return None
    precision = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query_1HTK.dtype
    return precision if precision in (torch.bfloat16, torch.float16) else None


@cache
def _has_flash(device: torch.device) -> bool:
    built = torch.backends.cuda.is_flash_attention_available() and torch.version.hip is None
    return built and torch.cuda.get_device_capability(device) >= (8, 0)


@cache
def _register() -> None:
    """Register this attention, which needs no mask, with transformers."""
    AttentionInterface.register(IMPLEMENTATION, attention)
    AttentionMaskInterface.register(IMPLEMENTATION, lambda *_, **__: None)


def can_end_in_first_token(model: PreTrainedModel) -> bool:
    """Prepare a model, with or without a head, for `model(..., first_token_alone=True)`; return whether it could.

    Without a head, the option gives states [B, F, D], of which only `states[:, 0]` count; heads that score texts read
    only those. Without the option, the model computes as before. Models not in `WITH_FIRST_TOKEN` stay unchanged.
    """
    if kind_of(model) not in WITH_FIRST_TOKEN:
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
        return type(layer).forward(layer, states, attention_mask, *others, **options)
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
    return layer.feed_forward_chunk(layer.attention.output(read, first_BFD))


def _distilbert(layer: Any, first_BFD: Tensor, states: Tensor, attend: Attend) -> Tensor:
    own = layer.attention
    read = attend(own.q_lin(first_BFD), own.k_lin(states), own.v_lin(states), own.n_heads, own.dropout)
    attended = layer.sa_layer_norm(own.out_lin(read) + first_BFD)
    return layer.output_layer_norm(layer.ffn(attended) + attended)
