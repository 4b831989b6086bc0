"""Masked language models as formulas, on one passage without padding: the reference for losses and gradients.

Shapes: l tokens, D width. All in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

WINDOW = 2
"""Places to either side that a local layer of `SlowModernBert` attends to."""


def norm(module: Any, states: Tensor) -> Tensor:
    centred = states - states.mean(-1, keepdim=True)
    scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + module.eps).sqrt() * module.weight
    return scaled if module.bias is None else scaled + module.bias


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def linear(module: Any, states: Tensor) -> Tensor:
    product = states @ module.weight.T
    return product if module.bias is None else product + module.bias


def attention(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, heads: int) -> Tensor:
    """Return what each position reads, [l, D]; `seen` [l, l] is 1 where a position attends to another, else 0."""
    size = query.shape[1] // heads
    read = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        exponents = (query[:, part] @ key[:, part].T / math.sqrt(size)).exp() * seen
        read.append(exponents / exponents.sum(1, keepdim=True) @ value[:, part])
    return torch.cat(read, 1)


def seen_by(length: int, causal: bool, window: int | None = None) -> Tensor:
    seen = torch.ones(length, length, dtype=torch.float64)
    for i in range(length):
        for j in range(length):
            if (causal and j > i) or (window is not None and abs(i - j) > window):
                seen[i, j] = 0
    return seen


class SlowBert:
    """BERT with post-norm layers and a table of positions."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.base = model.base_model
        self.heads = model.config.num_attention_heads

    @property
    def layers(self) -> Iterable[nn.Module]:
        return self.base.encoder.layer

    @property
    def words(self) -> Tensor:
        return self.base.embeddings.word_embeddings.weight

    def embed(self, ids: Tensor) -> Tensor:
        tables = self.base.embeddings
        total = self.words[ids] + tables.position_embeddings.weight[: len(ids)]
        return norm(tables.LayerNorm, total + tables.token_type_embeddings.weight[0])

    def hidden_states(self, ids: Tensor) -> list[Tensor]:
        """Return the input of each layer and the last states."""
        states = [self.embed(ids)]
        for layer in self.layers:
            states.append(self.layer(layer, states[-1], local=True))
        return states

    def layer(self, layer: Any, states: Tensor, causal: bool = False, local: bool = False) -> Tensor:
        """Apply a layer. With `local`, a layer that has a window attends only within it."""
        own = layer.attention.self
        query, key, value = (linear(each, states) for each in (own.query, own.key, own.value))
        read = attention(query, key, value, seen_by(len(states), causal), self.heads)
        states = norm(layer.attention.output.LayerNorm, states + linear(layer.attention.output.dense, read))
        narrow = linear(layer.output.dense, gelu(linear(layer.intermediate.dense, states)))
        return norm(layer.output.LayerNorm, states + narrow)

    def decoded(self, decoder: Any, states: Tensor, causal: bool) -> Tensor:
        for layer in decoder.layers:
            states = self.layer(layer, states, causal)
        return states

    def query_of(self, bottleneck: Tensor, length: int) -> Tensor:
        """Return the states that an enhanced decoder's queries are made from, [l, D]."""
        return bottleneck + self.base.embeddings.position_embeddings.weight[:length]

    def turned(self, states: Tensor, kind: str) -> Tensor:
        """Rotate queries or keys by their positions."""
        return states

    def enhanced(self, layer: Any, query: Tensor, content: Tensor, hidden: Tensor) -> Tensor:
        """RetroMAE's decoder layer."""
        q, k = (self.turned(linear(*pair), "full_attention") for pair in ((layer.query, query), (layer.key, content)))
        read = attention(q, k, linear(layer.value, content), (~hidden).double(), self.heads)
        states = norm(layer.attention_norm, query + linear(layer.out, read))
        return norm(layer.output_norm, states + linear(layer.narrow, gelu(linear(layer.wide, states))))

    def log_probabilities(self, states: Tensor) -> Tensor:
        transform = self.model.cls.predictions.transform
        return self._of_tokens(norm(transform.LayerNorm, gelu(linear(transform.dense, states))))

    def _of_tokens(self, inner: Tensor) -> Tensor:
        logits = inner @ self.words.T + self.model.get_output_embeddings().bias
        return logits - logits.exp().sum(-1, keepdim=True).log()


class SlowModernBert(SlowBert):
    """ModernBERT: pre-norm layers with a gate and rotary positions, some of which attend only within a window."""

    @property
    def layers(self) -> Iterable[nn.Module]:
        return self.base.layers

    @property
    def words(self) -> Tensor:
        return self.base.embeddings.tok_embeddings.weight

    def embed(self, ids: Tensor) -> Tensor:
        return norm(self.base.embeddings.norm, self.words[ids])

    def hidden_states(self, ids: Tensor) -> list[Tensor]:
        *inner, last = super().hidden_states(ids)
        return [*inner, norm(self.base.final_norm, last)]

    def turned(self, states: Tensor, kind: str) -> Tensor:
        """Multiply each pair (n, n + K/2) of a head, as a complex number, by e^(i · position · theta^(-2n/K))."""
        theta = {"full_attention": 160_000.0, "sliding_attention": 10_000.0}[kind]
        half = states.shape[1] // self.heads // 2
        speeds = theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(len(states), dtype=torch.float64)[:, None] * speeds
        turns = torch.polar(torch.ones_like(angles), angles)
        turned = []
        for head in states.split(2 * half, dim=1):
            pairs = torch.complex(head[:, :half], head[:, half:]) * turns
            turned += [pairs.real, pairs.imag]
        return torch.cat(turned, 1)

    def layer(self, layer: Any, states: Tensor, causal: bool = False, local: bool = False) -> Tensor:
        kind = layer.attention_type
        read = states if isinstance(layer.attn_norm, nn.Identity) else norm(layer.attn_norm, states)
        query, key, value = linear(layer.attn.Wqkv, read).chunk(3, dim=1)
        window = WINDOW if local and kind == "sliding_attention" else None
        query, key = self.turned(query, kind), self.turned(key, kind)
        seen = seen_by(len(states), causal, window)
        states = states + linear(layer.attn.Wo, attention(query, key, value, seen, self.heads))
        wide, gate = linear(layer.mlp.Wi, norm(layer.mlp_norm, states)).chunk(2, dim=1)
        return states + linear(layer.mlp.Wo, gelu(wide) * gate)

    def decoded(self, decoder: Any, states: Tensor, causal: bool) -> Tensor:
        return norm(decoder.final_norm, super().decoded(decoder, states, causal))

    def query_of(self, bottleneck: Tensor, length: int) -> Tensor:
        return bottleneck.expand(length, -1)

    def log_probabilities(self, states: Tensor) -> Tensor:
        head = self.model.head
        return self._of_tokens(norm(head.norm, gelu(linear(head.dense, states))))
