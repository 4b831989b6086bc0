"""The decoders of the objectives: shallow, beside the encoder in training alone, and thrown away after it.

Each gets the bottleneck and an input of its own and gives states [B, L, D], of which that at position i predicts token
i. Shape suffixes: B passages, L tokens, D hidden width, H heads, K width of a head.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForMaskedLM, PreTrainedModel

from stillhouse.errors import InputError
from stillhouse.pretraining.heads import family_of
from stillhouse.pretraining.objectives import Objective


class SelfAttentionDecoder(nn.Module):
    """Transformer layers of the encoder's kind over a sequence whose first state is the bottleneck.

    With `causal` a position attends to itself and what is before it, and its state predicts its successor: `forward`
    gives the states moved on by one place, so that the state at i is the one that predicts token i (002 eq. 7).
    """

    def __init__(self, layers: nn.ModuleList, causal: bool) -> None:
        super().__init__()
        self.layers = layers
        self.causal = causal

    def forward(self, states_BLD: Tensor, attention_BL: Tensor) -> Tensor:
        seen_BLL = attention_BL[:, None, None, :]
        if self.causal:
            length = attention_BL.shape[1]
            seen_BLL = seen_BLL & torch.ones(length, length, dtype=torch.bool, device=attention_BL.device).tril()
        lowest = torch.finfo(states_BLD.dtype).min
        additive = torch.zeros(seen_BLL.shape, dtype=states_BLD.dtype, device=states_BLD.device)
        additive.masked_fill_(~seen_BLL, lowest)
        for layer in self.layers:
            states_BLD = layer(states_BLD, additive)
        return states_BLD.roll(1, dims=1) if self.causal else states_BLD


class EnhancedDecoder(nn.Module):
    """RetroMAE's decoder (002 eq. 8-10): queries that know the bottleneck and their position alone read the passage.

    `forward(query_BLD, content_BLD, hidden_BLL)`: position i reads content j unless `hidden_BLL[:, i, j]`. The first
    state of the content is the bottleneck, as in RetroMAE; 002 eq. 8 leaves that open. All layers read one content.
    """

    def __init__(self, layers: int, width: int, heads: int, inner: int, dropout: float, spread: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(CrossAttentionLayer(width, heads, inner, dropout) for _ in range(layers))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=spread)
                nn.init.zeros_(module.bias)

    def forward(self, query_BLD: Tensor, content_BLD: Tensor, hidden_BLL: Tensor) -> Tensor:
        for layer in self.layers:
            query_BLD = layer(query_BLD, content_BLD, hidden_BLL)
        return query_BLD


class CrossAttentionLayer(nn.Module):
    """Attention from a query stream to a content stream and a feed-forward part, each with residual and post-norm.

    002 eq. 9 prints the attention without its projections and the residual from the query; both are in RetroMAE.
    """

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.output_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, query_BLD: Tensor, content_BLD: Tensor, hidden_BLL: Tensor) -> Tensor:
        query_BHLK, key_BHLK, value_BHLK = (
            linear(states_BLD).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear, states_BLD in ((self.query, query_BLD), (self.key, content_BLD), (self.value, content_BLD))
        )
        read_BHLK = functional.scaled_dot_product_attention(
            query_BHLK,
            key_BHLK,
            value_BHLK,
            attn_mask=~hidden_BLL[:, None],
            dropout_p=self.dropout if self.training else 0.0,
        )
        states_BLD = self.attention_norm(query_BLD + self._drop(self.out(read_BHLK.transpose(1, 2).flatten(2))))
        changed_BLD = self._drop(self.narrow(functional.gelu(self.wide(states_BLD))))
        normed: Tensor = self.output_norm(states_BLD + changed_BLD)
        return normed

    def _drop(self, states_BLD: Tensor) -> Tensor:
        return functional.dropout(states_BLD, self.dropout, self.training)


def make_decoder(model: PreTrainedModel, objective: Objective) -> nn.Module:
    """The decoder of a row; an empty module where it has none. Raises `InputError` for an encoder of too few layers."""
    if objective.decoder == "none":
        return nn.Module()
    if objective.decoder == "enhanced":
        config = model.config
        sizes = (config.hidden_size, config.num_attention_heads)
        inner = int(getattr(config, "intermediate_size", 0) or config.hidden_dim)
        dropout = float(getattr(config, "hidden_dropout_prob", getattr(config, "dropout", 0.1)))
        return EnhancedDecoder(objective.decoder_layers, *sizes, inner, dropout, float(config.initializer_range))
    assert objective.decoder in ("bidirectional", "causal", "skip"), objective.decoder
    return SelfAttentionDecoder(_layers(model, objective), objective.decoder == "causal")


def _layers(model: PreTrainedModel, objective: Objective) -> nn.ModuleList:
    """Copies of the encoder's last layers (the authors' code of 001), or new ones (003 §3.1)."""
    if objective.decoder_init == "random":
        fresh = AutoModelForMaskedLM.from_config(_shallow(model, objective.decoder_layers))
        return family_of(fresh).layers(fresh)
    assert objective.decoder_init == "last_layers", objective.decoder_init
    layers = family_of(model).layers(model)
    if len(layers) < objective.decoder_layers:
        raise InputError(
            f"objective {objective.name!r} copies the encoder's last {objective.decoder_layers} layers, but it has "
            f"{len(layers)}; take a deeper model, or set decoder_init to random"
        )
    return copy.deepcopy(layers[-objective.decoder_layers :])


def _shallow(model: PreTrainedModel, layers: int) -> object:
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = layers
    return config
