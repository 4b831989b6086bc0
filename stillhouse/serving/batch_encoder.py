"""Encodes several texts at once: all tokens in one row for the linear layers, attention within each text.

No text is padded, so a batch of short and long texts costs only its tokens. The row is padded to a multiple of eight
tokens, and the weights are packed for the processor once, in fp32 or bf16. With bf16 the types are those of
autocast: linear layers and attention in bf16, sums and norms in fp32.

Shape suffixes: Q texts, T tokens of all texts, L tokens of a text, B texts of one length, H heads, K width of a head,
D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from stillhouse.acceleration.linear_layers import can_pack, packed_forward
from stillhouse.retrieval.index.exact_search import EVEN
from stillhouse.retrieval.models.pooling import normalized, pool
from stillhouse.retrieval.models.query_encoder import AnyEncoder, PlainBert

Linear = Callable[[Tensor], Tensor]
FEW_TOKENS = 16
"""Up to this many tokens are computed on one thread: several would spend longer waiting for each other."""


class BatchEncoder(Protocol):
    """Encodes texts that were tokenized before, so that a batch can be as large as its token limit allows."""

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, including special tokens, truncated to what the model reads."""

    def vectors(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Float32 [Q, D]."""

    def token_states(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """What is pooled: float32 [L, D] of a text."""


@dataclass(frozen=True)
class _Layer:
    into: Linear
    out: Linear
    up: Linear
    down: Linear
    heads: int
    activation: Linear
    norm1: nn.LayerNorm
    norm2: nn.LayerNorm


class PackedBert:
    """The model of a `PlainBert`, for several texts at once. Vectors are equal up to rounding in `dtype`.

    `dtype` is float32 or bfloat16. The layers that it was made from are not kept.
    """

    def __init__(self, plain: PlainBert, dtype: torch.dtype = torch.float32) -> None:
        self._layers = [_layer(layer, plain.device, dtype) for layer in plain.layers]
        self._plain = plain.without_layers()
        self.tokenize = plain.tokens.cut

    @torch.inference_mode()
    def vectors(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        plain = self._plain
        order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
        groups: list[tuple[int, int, int]] = []
        begin = 0
        for length, members in groupby(order, key=lambda number: len(ids[number])):
            count = len(list(members))
            groups.append((begin, count, length))
            begin += count * length
        tokens = [token for number in order for token in ids[number]]
        with threads_for(len(tokens)):
            states_TD = self._states(tokens, groups)
        vectors_QD = np.empty((len(ids), plain.width), dtype=np.float32)
        first = 0
        for begin, count, length in groups:
            hidden_BLD = states_TD[begin : begin + count * length].view(count, length, plain.width)
            vector_BD = pool(hidden_BLD, torch.ones(count, length, device=plain.device), plain.pooling)
            rows = order[first : first + count]
            vectors_QD[rows] = (normalized(vector_BD) if plain.normalize else vector_BD).cpu().numpy()
            first += count
        return vectors_QD

    @torch.inference_mode()
    def token_states(self, ids: Sequence[int]) -> NDArray[np.float32]:
        return self._states(list(ids), [(0, 1, len(ids))])[: len(ids)].float().cpu().numpy()

    def _states(self, tokens: list[int], groups: Sequence[tuple[int, int, int]]) -> Tensor:
        """Hidden states [T, D]; `groups` holds the first token, the count and the length of the texts of each
        length."""
        plain = self._plain
        places = [place for _, count, length in groups for _ in range(count) for place in range(length)]
        filling = [0] * (-len(tokens) % EVEN)
        ids_T = torch.tensor(tokens + filling, device=plain.device)
        places_T = torch.tensor(places + filling, device=plain.device)
        states = plain.embedded(ids_T, places_T)
        for layer in self._layers:
            states = layer.norm1(states + layer.out(_attended(layer.into(states), groups, layer.heads)))
            states = layer.norm2(states + layer.down(layer.activation(layer.up(states))))
        return states


@contextmanager
def threads_for(tokens: int) -> Iterator[None]:
    """Computes on one thread until the block ends, if there are few tokens.

    Threads meet after every layer and spin until the last one arrives. If a core is busy with something else, such as
    the clients, that costs more than a second thread gains.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if tokens <= FEW_TOKENS else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _attended(three_TE: Tensor, groups: Sequence[tuple[int, int, int]], heads: int) -> Tensor:
    """Attention within every text, [T, D]; `three_TE` holds queries, keys and values side by side."""
    width = three_TE.shape[1] // 3
    result_TD = three_TE.new_zeros(len(three_TE), width)
    for begin, count, length in groups:
        part = three_TE[begin : begin + count * length].view(count, length, 3, heads, width // heads)
        query, key, value = part.permute(2, 0, 3, 1, 4)
        seen_BHLK = scaled_dot_product_attention(query, key, value)
        result_TD[begin : begin + count * length] = seen_BHLK.transpose(1, 2).reshape(count * length, width)
    return result_TD


def _layer(layer: nn.Module, device: torch.device, dtype: torch.dtype) -> _Layer:
    assert isinstance(layer, nn.TransformerEncoderLayer)
    attention = layer.self_attn
    into = nn.Linear(attention.embed_dim, 3 * attention.embed_dim, device="meta")
    into.load_state_dict({"weight": attention.in_proj_weight, "bias": attention.in_proj_bias}, assign=True)
    return _Layer(
        into=_ready(into, device, dtype),
        out=_ready(attention.out_proj, device, dtype),
        up=_ready(layer.linear1, device, dtype),
        down=_ready(layer.linear2, device, dtype),
        heads=attention.num_heads,
        activation=layer.activation,
        norm1=layer.norm1,
        norm2=layer.norm2,
    )


def _ready(layer: nn.Linear, device: torch.device, dtype: torch.dtype) -> Linear:
    """The layer in a type, with packed weights if the processor can use them."""
    if can_pack(dtype, device):
        return packed_forward(layer, dtype)
    weight, bias = layer.weight.to(dtype), layer.bias.to(dtype)
    return lambda input: linear(input.to(dtype), weight, bias)


class TowerEncoder:
    """The tower of any retriever for one role, through the encoder that the steps use."""

    def __init__(self, encoder: AnyEncoder, role: str) -> None:
        self._encoder, self._role = encoder, role

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        model = self._encoder.encoder
        return (model.queries(texts) if self._role == "query" else model.passages(texts)).ids

    def vectors(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        from stillhouse.retrieval.models.encoder import EncoderTexts, encode
        from stillhouse.retrieval.models.query_encoder import EXACT

        model = self._encoder.encoder
        empty = model.queries([]) if self._role == "query" else model.passages([])
        texts = EncoderTexts([list(each) for each in ids], empty.padding_id, empty.role, empty.max_length)
        made: NDArray[np.float32] = encode(model, texts, self._encoder.context, "texts", EXACT)
        return made

    def token_states(self, ids: Sequence[int]) -> NDArray[np.float32]:
        from stillhouse.retrieval.models.encoder import inference
        from stillhouse.retrieval.models.query_encoder import EXACT
        from stillhouse.retrieval.models.towers import BagOfWordsTower

        model = self._encoder.encoder
        tower = model.tower("query" if self._role == "query" else "passage")
        with inference(model, self._encoder.context, EXACT) as device:
            ids_1L = torch.tensor([list(ids)], device=device)
            if isinstance(tower, BagOfWordsTower):
                return tower.embedding(ids_1L)[0].float().cpu().numpy()
            if tower.encoder is None:
                return tower.first.embedding.weight[ids_1L[0]].float().cpu().numpy()
            states_1LD = tower.encoder(input_ids=ids_1L, attention_mask=torch.ones_like(ids_1L)).last_hidden_state
            return states_1LD[0].float().cpu().numpy()
