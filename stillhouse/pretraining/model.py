"""An encoder trained through a bottleneck: the model of 001 §3.1 and 003 §3.1, and the bag of words of 002 §3.3.

Shape suffixes: B passages, L tokens, D hidden width, N positions with a loss.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel

from stillhouse.errors import InputError
from stillhouse.pretraining.corrupted import Corrupted, CorruptedBatch
from stillhouse.pretraining.cross_entropy import bag_of_words_cross_entropy, token_cross_entropy
from stillhouse.pretraining.heads import family_of, head_parameters, output_matrix
from stillhouse.pretraining.objectives import Objective
from stillhouse.retrieval.pooling import pool


class BottleneckPretraining(nn.Module):
    """`forward(batch)` is the loss of an objective's row, the sum of `parts(batch)`.

    Input embeddings and language-model head are the encoder's own, for the decoder too; the decoder's layers and the
    projection are thrown away after training. With `head_only` nothing but the head learns, and the encoder stays in
    evaluation mode.
    """

    def __init__(self, model: PreTrainedModel, objective: Objective, pooling: str, *, head_only: bool = False) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.pooling = pooling
        self.head_only = head_only
        self.family = family_of(model)
        self.decoder = _decoder_layers(model, objective)
        width = int(model.config.hidden_size)
        self.bottleneck: nn.Module = nn.Linear(width, width) if objective.bottleneck == "linear" else nn.Identity()
        weight_VE, _ = output_matrix(model)
        if objective.bag_of_words and weight_VE.shape[1] != width:
            raise InputError(
                f"objective {objective.name!r} multiplies a passage's vector (width {width}) with the word embeddings "
                f"(width {weight_VE.shape[1]}); take a model in which both are equally wide"
            )
        if head_only:
            self.requires_grad_(False)
            for parameter in head_parameters(model).values():
                parameter.requires_grad_(True)

    def train(self, mode: bool = True) -> BottleneckPretraining:
        super().train(mode)
        if self.head_only:
            self.model.base_model.eval()
        return self

    def forward(self, batch: CorruptedBatch) -> Tensor:
        return torch.stack(list(self.parts(batch).values())).sum()

    def parts(self, batch: CorruptedBatch) -> dict[str, Tensor]:
        """The terms of the loss: `encoder`, and `decoder` or `bag_of_words` where the row has them."""
        hidden_BLD = self.encode(batch.encoder.ids_BL, batch.attention_BL)
        losses = {"encoder": self.prediction_loss(hidden_BLD, batch, batch.encoder)}
        if batch.decoder is not None:
            decoded_BLD = self.decode(
                self.vector(hidden_BLD, batch.attention_BL), batch.decoder.ids_BL, batch.attention_BL
            )
            losses["decoder"] = self.prediction_loss(decoded_BLD, batch, batch.decoder)
        if self.objective.bag_of_words:
            weight_VE, _ = output_matrix(self.model)
            vectors_BD = self.vector(hidden_BLD, batch.attention_BL)
            losses["bag_of_words"] = bag_of_words_cross_entropy(vectors_BD, weight_VE, batch.ids_BL, batch.special_BL)
        return losses

    def encode(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """The encoder's last hidden states [B, L, D]."""
        states: Tensor = self.model.base_model(input_ids=ids_BL, attention_mask=attention_BL.long()).last_hidden_state
        return states

    def vector(self, hidden_BLD: Tensor, attention_BL: Tensor) -> Tensor:
        """The pooled vector [B, D], which is what retrieval will use."""
        return pool(hidden_BLD, attention_BL, self.pooling)

    def decode(self, vectors_BD: Tensor, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """The decoder's states [B, L, D] from its corrupted input with the bottleneck in place of the first token.

        The bottleneck h_b = W h + b is 003 eq. 4; where the row has it raw, h itself (001 §3.1). It gets no position
        embedding and no layer normalisation of its own.
        """
        embedded_BLD = self.family.embed(self.model)(ids_BL)
        first_B1D = self.bottleneck(vectors_BD).unsqueeze(1).to(embedded_BLD.dtype)
        states_BLD = torch.cat([first_B1D, embedded_BLD[:, 1:]], dim=1)
        lowest = torch.finfo(states_BLD.dtype).min
        additive_B11L = torch.zeros_like(attention_BL, dtype=states_BLD.dtype).masked_fill(~attention_BL, lowest)
        for layer in self.decoder:
            states_BLD = layer(states_BLD, additive_B11L[:, None, None, :])
        return states_BLD

    def prediction_loss(self, states_BLD: Tensor, batch: CorruptedBatch, corrupted: Corrupted) -> Tensor:
        """Cross-entropy of the original tokens: the mean over a passage's positions, then over passages (001 eq. 2).

        Positions are all tokens of the passage, or the corrupted ones alone (003 eq. 3 and 6, which sum over them; the
        mean differs by a factor that AdamW does not see). Special tokens are never predicted.
        """
        wanted_BL = ~batch.special_BL if self.objective.positions == "all" else corrupted.mask_BL
        count_B1 = wanted_BL.sum(1, keepdim=True)
        weights_BL = wanted_BL / (count_B1.clamp(min=1) * len(wanted_BL))
        states_NE = self.family.transform(self.model)(states_BLD[wanted_BL])
        weight_VE, bias_V = output_matrix(self.model)
        targets_N, weights_N = batch.ids_BL[wanted_BL], weights_BL[wanted_BL]
        return token_cross_entropy(states_NE, weight_VE, bias_V, targets_N, weights_N)


def _decoder_layers(model: PreTrainedModel, objective: Objective) -> nn.ModuleList:
    """The decoder: copies of the encoder's last layers (the authors' code of 001), or new ones (003 §3.1)."""
    if objective.decoder == "none":
        return nn.ModuleList()
    if objective.decoder_init == "random":
        config = copy.deepcopy(model.config)
        config.num_hidden_layers = objective.decoder_layers
        fresh = AutoModelForMaskedLM.from_config(config)
        return family_of(fresh).layers(fresh)
    assert objective.decoder_init == "last_layers", objective.decoder_init
    layers = family_of(model).layers(model)
    if len(layers) < objective.decoder_layers:
        raise InputError(
            f"objective {objective.name!r} copies the encoder's last {objective.decoder_layers} layers, but it has "
            f"{len(layers)}; take a deeper model"
        )
    return copy.deepcopy(layers[-objective.decoder_layers :])
