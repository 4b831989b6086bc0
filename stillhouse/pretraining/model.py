"""One module for training an encoder through a bottleneck: SimLM §3.1 and §5.1, BoW §3.1 and §3.3, CDMAE §3.1.

Shape suffixes: B passages, L tokens, D hidden width, N positions with a loss.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from stillhouse.core.errors import InputError
from stillhouse.models.pooling import pool
from stillhouse.pretraining.corrupted import Corrupted, CorruptedBatch
from stillhouse.pretraining.cross_entropy import bag_of_words_cross_entropy, passage_weights, token_cross_entropy
from stillhouse.pretraining.decoders import make_decoder
from stillhouse.pretraining.heads import family_of, head_parameters, output_matrix
from stillhouse.pretraining.objectives import Objective


class ReplacedTokenHead(nn.Module):
    """Predicts whether tokens were replaced, as ELECTRA's discriminator does: logits [...] from states [..., D]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.out(functional.gelu(self.dense(states))).squeeze(-1)
        return logits


class BottleneckPretraining(nn.Module):
    """`forward(batch)` is the loss of an objective, the sum of `parts(batch)`.

    The decoder shares the encoder's input embeddings and language-model head. The decoder's layers, the projection and
    the head for replaced tokens are discarded after training. `generator` is a generator that learns with the encoder;
    it is held here so that the optimiser and checkpoints include its parameters. With `head_only` only the head
    learns, and the encoder stays in evaluation mode.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        objective: Objective,
        pooling: str,
        *,
        generator: PreTrainedModel | None = None,
        generator_weight: float = 0.2,
        head_only: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.pooling = pooling
        self.generator = generator
        self.generator_weight = generator_weight
        self.head_only = head_only
        self.family = family_of(model)
        self.decoder = make_decoder(model, objective)
        width = int(model.config.hidden_size)
        self.bottleneck: nn.Module = nn.Linear(width, width) if objective.bottleneck == "linear" else nn.Identity()
        self.replaced_head = ReplacedTokenHead(width) if objective.prediction == "replaced" else None
        weight_VE, _ = output_matrix(model)
        if objective.bag_of_words and weight_VE.shape[1] != width:
            raise InputError(
                f"objective {objective.name!r} multiplies a passage's vector (width {width}) by the word embeddings "
                f"(width {weight_VE.shape[1]}); use a model where both have the same width"
            )
        if head_only:
            self.requires_grad_(False)
            for parameter in head_parameters(model).values():
                parameter.requires_grad_(True)

    def train(self, mode: bool = True) -> BottleneckPretraining:
        super().train(mode)
        if self.head_only:
            self.model.base_model.eval()
        if self.generator is not None:  # samples without dropout, learning or not
            self.generator.eval()
        return self

    def forward(self, batch: CorruptedBatch) -> Tensor:
        """The sum of `parts(batch)`."""
        return torch.stack(list(self.parts(batch).values())).sum()

    def parts(self, batch: CorruptedBatch) -> dict[str, Tensor]:
        """The terms of the objective's loss, out of `encoder`, `decoder`, `bag_of_words` and `generator`."""
        losses: dict[str, Tensor] = {}
        hidden_BLD, middle_BLD = self.encode(batch.encoder.ids_BL, batch.attention_BL)
        if self.objective.encoder.draw != "none":
            losses["encoder"] = self.prediction_loss(hidden_BLD, batch, batch.encoder)
        vectors_BD = self.vector(hidden_BLD, batch.attention_BL)
        if self.objective.decoder != "none":
            corrupted = batch.decoder or batch.encoder
            decoded_BLD = self.decode(vectors_BD, middle_BLD, batch)
            losses["decoder"] = self.prediction_loss(decoded_BLD, batch, corrupted)
        if self.objective.bag_of_words:
            weight_VE, _ = output_matrix(self.model)
            losses["bag_of_words"] = bag_of_words_cross_entropy(vectors_BD, weight_VE, batch.ids_BL, batch.special_BL)
        if batch.generator_loss is not None:
            losses["generator"] = self.generator_weight * batch.generator_loss
        return losses

    def encode(self, ids_BL: Tensor, attention_BL: Tensor) -> tuple[Tensor, Tensor | None]:
        """The last hidden states, and those of the middle layer for a decoder with skip connections (Condenser)."""
        skip = self.objective.decoder == "skip"
        output = self.model.base_model(
            input_ids=ids_BL, attention_mask=attention_BL.long(), output_hidden_states=skip or None
        )
        last_BLD = output.last_hidden_state
        # On a GPU, the states between layers are in bf16 and the last ones in fp32.
        middle_BLD = output.hidden_states[len(self.family.layers(self.model)) // 2].to(last_BLD.dtype) if skip else None
        return last_BLD, middle_BLD

    def vector(self, hidden_BLD: Tensor, attention_BL: Tensor) -> Tensor:
        """The pooled vector [B, D] that retrieval uses."""
        return pool(hidden_BLD, attention_BL, self.pooling)

    def decode(self, vectors_BD: Tensor, middle_BLD: Tensor | None, batch: CorruptedBatch) -> Tensor:
        """The decoder's states [B, L, D]; the state at position i predicts token i.

        The bottleneck is h_b = W h + b (CDMAE eq. 4), or h itself if the objective has it raw (SimLM §3.1). It gets no
        position embedding or layer normalisation of its own. Only a decoder with skip connections reads `middle_BLD`.
        """
        if middle_BLD is None:
            assert batch.decoder is not None
            middle_BLD = self.family.embed(self.model)(batch.decoder.ids_BL)
        first_B1D = self.bottleneck(vectors_BD).unsqueeze(1).to(middle_BLD.dtype)
        states_BLD = torch.cat([first_B1D, middle_BLD[:, 1:]], dim=1)
        decoded_BLD: Tensor
        if self.objective.decoder == "enhanced":
            assert batch.hidden_BLL is not None
            positions_LD = self.family.positions(self.model)(states_BLD.shape[1])
            decoded_BLD = self.decoder(first_B1D + positions_LD, states_BLD, batch.hidden_BLL)
        else:
            decoded_BLD = self.decoder(states_BLD, batch.attention_BL)
        return decoded_BLD

    def prediction_loss(self, states_BLD: Tensor, batch: CorruptedBatch, corrupted: Corrupted) -> Tensor:
        """Cross-entropy of the original tokens: the mean over a passage's positions, then over passages (SimLM eq. 2).

        Positions are all tokens of the passage or only the corrupted ones (CDMAE eq. 3 and 6, which sum over them; the
        mean differs by a factor that AdamW cancels). Causal and enhanced decoders predict all. Special tokens are never
        predicted. An objective that predicts which tokens were replaced uses binary cross-entropy (SimLM §5.1); a
        sample equal to the original token counts as original, as in ELECTRA.
        """
        whole = self.objective.predicts_all(of_decoder=corrupted is batch.decoder)
        wanted_BL = ~batch.special_BL if whole else corrupted.mask_BL
        # Compute the indices once: on a GPU, every `nonzero` waits for all queued work.
        place_N = wanted_BL.flatten().nonzero().squeeze(1)
        weights_N = passage_weights(wanted_BL).flatten()[place_N]
        states_ND = states_BLD.flatten(0, 1).index_select(0, place_N)
        targets_N = batch.ids_BL.flatten()[place_N]
        if self.replaced_head is not None:
            replaced_N = corrupted.ids_BL.flatten()[place_N] != targets_N
            logits_N = self.replaced_head(states_ND)
            logits_N = logits_N.to(torch.promote_types(logits_N.dtype, torch.float32))
            losses_N = functional.binary_cross_entropy_with_logits(
                logits_N, replaced_N.to(logits_N.dtype), reduction="none"
            )
            return (weights_N * losses_N).sum()
        states_NE = self.family.transform(self.model)(states_ND)
        weight_VE, bias_V = output_matrix(self.model)
        return token_cross_entropy(states_NE, weight_VE, bias_V, targets_N, weights_N)
