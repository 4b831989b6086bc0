"""The decoders of the objectives: shallow networks used only in training and discarded afterwards.

Each reads the bottleneck and its own input and returns states [B, L, D]; the state at position i predicts token i.
Shape suffixes: B passages, L tokens, D hidden width, H heads, K width of a head.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForMaskedLM, PreTrainedModel
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from stillhouse.core.errors import InputError
from stillhouse.models.transformer import keep_layers
from stillhouse.pretraining.heads import family_of
from stillhouse.pretraining.objectives import Objective

DROPOUTS = ("hidden_dropout_prob", "dropout", "mlp_dropout")
"""The names that configurations use for output dropout: BERT-like models, DistilBERT, ModernBERT."""


class SelfAttentionDecoder(nn.Module):
    """Transformer layers of the encoder's type over a sequence that starts with the bottleneck.

    With `causal` a position attends to itself and earlier positions, and its state predicts the next token. `forward`
    shifts the states by one place, so that the state at i predicts token i (BoW eq. 7).

    Local layers (ModernBERT) attend to the whole passage here, or most positions would not see the bottleneck.
    `final_norm` and `rotary` are as in `heads.Family`.
    """

    def __init__(
        self, layers: nn.ModuleList, causal: bool, final_norm: nn.Module | None = None, rotary: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.layers = layers
        self.causal = causal
        self.final_norm = final_norm or nn.Identity()
        self.rotary = rotary

    def forward(self, states_BLD: Tensor, attention_BL: Tensor) -> Tensor:
        seen_BLL = attention_BL[:, None, None, :]
        if self.causal:
            length = attention_BL.shape[1]
            seen_BLL = seen_BLL & torch.ones(length, length, dtype=torch.bool, device=attention_BL.device).tril()
        lowest = torch.finfo(states_BLD.dtype).min
        additive = torch.zeros(seen_BLL.shape, dtype=states_BLD.dtype, device=states_BLD.device)
        additive.masked_fill_(~seen_BLL, lowest)
        for layer in self.layers:
            turns = {}
            if self.rotary is not None:
                turns["position_embeddings"] = turns_of(self.rotary, states_BLD, str(layer.attention_type))
            states_BLD = layer(states_BLD, additive, **turns)
        states_BLD = self.final_norm(states_BLD)
        return states_BLD.roll(1, dims=1) if self.causal else states_BLD


Turns = tuple[Tensor, Tensor]
"""Cosines and sines [1, L, K] of the angles by which positions rotate queries and keys."""


def turns_of(rotary: nn.Module, states_BLD: Tensor, kind: str) -> Turns:
    """The rotations for a passage, from its first token on; `kind` is a layer's `attention_type`."""
    position_1L = torch.arange(states_BLD.shape[1], device=states_BLD.device)[None]
    cosine_1LK, sine_1LK = rotary(states_BLD, position_1L, kind)
    return cosine_1LK, sine_1LK


class EnhancedDecoder(nn.Module):
    """RetroMAE's decoder (BoW eq. 8-10): queries made of the bottleneck and a position attend to the passage.

    `forward(query_BLD, content_BLD, hidden_BLL)`: position i reads content j unless `hidden_BLL[:, i, j]`. The first
    state of the content is the bottleneck, as in RetroMAE; BoW eq. 8 leaves that open. All layers read the same
    content. With `rotary`, queries get their position by rotation, as in the encoder.
    """

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        inner: int,
        dropout: float,
        spread: float,
        rotary: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.rotary = rotary
        self.layers = nn.ModuleList(CrossAttentionLayer(width, heads, inner, dropout) for _ in range(layers))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=spread)
                nn.init.zeros_(module.bias)

    def forward(self, query_BLD: Tensor, content_BLD: Tensor, hidden_BLL: Tensor) -> Tensor:
        turns = turns_of(self.rotary, query_BLD, "full_attention") if self.rotary is not None else None
        for layer in self.layers:
            query_BLD = layer(query_BLD, content_BLD, hidden_BLL, turns)
        return query_BLD


class CrossAttentionLayer(nn.Module):
    """Attention from a query stream to a content stream and a feed-forward part, each with residual and post-norm.

    BoW eq. 9 omits the attention's projections and the residual from the query; RetroMAE has both.
    """

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.output_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, query_BLD: Tensor, content_BLD: Tensor, hidden_BLL: Tensor, turns: Turns | None = None) -> Tensor:
        query_BHLK, key_BHLK, value_BHLK = (
            linear(states_BLD).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear, states_BLD in ((self.query, query_BLD), (self.key, content_BLD), (self.value, content_BLD))
        )
        if turns is not None:
            query_BHLK, key_BHLK = apply_rotary_pos_emb(query_BHLK, key_BHLK, *turns)
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
    """The decoder of an objective, or an empty module. Raises `InputError` if the encoder has too few layers."""
    if objective.decoder == "none":
        return nn.Module()
    if objective.decoder == "enhanced":
        config = model.config
        sizes = (config.hidden_size, config.num_attention_heads)
        inner = int(getattr(config, "intermediate_size", 0) or config.hidden_dim)
        dropout = next(float(getattr(config, name)) for name in DROPOUTS if hasattr(config, name))
        spread = float(config.initializer_range)
        rotary = copy.deepcopy(family_of(model).rotary(model))
        return EnhancedDecoder(objective.decoder_layers, *sizes, inner, dropout, spread, rotary)
    return _self_attention(model, objective)


def _self_attention(model: PreTrainedModel, objective: Objective) -> SelfAttentionDecoder:
    """Copies of the encoder's last layers (SimLM's code) or new ones (CDMAE §3.1), with the final norm and rotary
    part."""
    causal = objective.decoder == "causal"
    if objective.decoder_init == "random":
        config = copy.deepcopy(model.config)
        keep_layers(config, objective.decoder_layers)
        fresh = AutoModelForMaskedLM.from_config(config)
        family = family_of(fresh)
        return SelfAttentionDecoder(family.layers(fresh), causal, family.final_norm(fresh), family.rotary(fresh))
    assert objective.decoder_init == "last_layers", objective.decoder_init
    family = family_of(model)
    layers = family.layers(model)
    if len(layers) < objective.decoder_layers:
        raise InputError(
            f"objective {objective.name!r} copies the encoder's last {objective.decoder_layers} layers, but it has "
            f"{len(layers)}; take a deeper model, or set decoder_init to random"
        )
    last = layers[-objective.decoder_layers :]
    return SelfAttentionDecoder(*copy.deepcopy((last, causal, family.final_norm(model), family.rotary(model))))
