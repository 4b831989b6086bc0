"""The generator of SimLM eq. 1: a masked language model that samples tokens for masked positions.

Shape suffixes: B passages, L tokens, N masked positions, V vocabulary, C positions of one chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from stillhouse.models.acceleration.device import on_device
from stillhouse.pretraining.cross_entropy import passage_weights, rows_at_once, token_cross_entropy
from stillhouse.pretraining.heads import family_of, last_states, output_matrix
from stillhouse.pretraining.tokens import SpecialTokens


@dataclass(frozen=True)
class Generator:
    """Samples in evaluation mode (no dropout), only at masked positions, and never a special token.

    With `learns` it is trained with the encoder (SimLM Table 12, "joint"): `replace` also returns its loss. No gradient
    passes through the samples. `vocabulary`: how many output rows are tokens (0: all); some models have more rows.
    """

    model: PreTrainedModel
    specials: SpecialTokens
    learns: bool = False
    vocabulary: int = 0

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        specials: SpecialTokens,
        device: torch.device,
        learns: bool = False,
        vocabulary: int = 0,
    ) -> Generator:
        placed = model.to(device).eval().requires_grad_(learns)  # type: ignore[arg-type]
        return cls(placed, specials, learns, vocabulary)

    def replace(
        self, ids_BL: Tensor, attention_BL: Tensor, masks: Sequence[Tensor], rng: np.random.Generator
    ) -> tuple[list[Tensor], Tensor | None]:
        """Replace the positions of each mask in `ids_BL` by samples.

        Each mask is bool [B, L]; a frozen generator makes one forward pass for all of them. A sample may equal the
        original token. The second value is the loss of a generator that learns, else None: cross-entropy at the
        positions of the first mask (the encoder's, as in SimLM's code), the mean over a passage's positions, then over
        passages.
        """
        loss = None
        if self.learns:  # only the first mask, which has the loss, needs a graph
            first_BLD = self._states(ids_BL, attention_BL, masks[:1])
            loss = self._loss(first_BLD, ids_BL, masks[0])
            with torch.no_grad():
                others = [self._states(ids_BL, attention_BL, [mask_BL]) for mask_BL in masks[1:]]
            hidden_BLD = torch.cat([first_BLD.detach(), *others])
        else:
            with torch.no_grad():
                hidden_BLD = self._states(ids_BL, attention_BL, masks)
        masked_BL = torch.cat(list(masks))
        return self._samples(hidden_BLD, ids_BL.repeat(len(masks), 1), masked_BL, len(masks), rng), loss

    def _states(self, ids_BL: Tensor, attention_BL: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """The last hidden states of the passages under each mask, one mask after another."""
        inputs_BL = ids_BL.repeat(len(masks), 1).masked_fill(torch.cat(list(masks)), self.specials.mask)
        return last_states(self.model, inputs_BL, attention_BL.repeat(len(masks), 1))

    def _loss(self, hidden_BLD: Tensor, ids_BL: Tensor, mask_BL: Tensor) -> Tensor:
        weight_VE, bias_V = output_matrix(self.model)
        states_NE = family_of(self.model).transform(self.model)(hidden_BLD[mask_BL])
        return token_cross_entropy(states_NE, weight_VE, bias_V, ids_BL[mask_BL], passage_weights(mask_BL)[mask_BL])

    @torch.no_grad()
    def _samples(
        self, hidden_BLD: Tensor, ids_BL: Tensor, masked_BL: Tensor, masks: int, rng: np.random.Generator
    ) -> list[Tensor]:
        states_ND = hidden_BLD[masked_BL]
        dice_N = on_device(rng.random(len(states_ND), dtype=np.float32), ids_BL.device)
        rows = rows_at_once(ids_BL.device, self.model.config.vocab_size)
        samples = [self._sample(*part) for part in zip(states_ND.split(rows), dice_N.split(rows))]
        replaced_BL = ids_BL.clone()
        if samples:
            replaced_BL[masked_BL] = torch.cat(samples)
        return list(replaced_BL.chunk(masks))

    def _sample(self, states_CD: Tensor, dice_C: Tensor) -> Tensor:
        """Sample one token per state by inverting the distribution function at `dice_C` in [0, 1)."""
        weight_VE, bias_V = output_matrix(self.model)
        tokens = slice(self.vocabulary or len(weight_VE))
        inner_CE = family_of(self.model).transform(self.model)(states_CD)
        logits_CV = functional.linear(inner_CE, weight_VE[tokens], bias_V[tokens])
        logits_CV[:, list(self.specials.all)] = -torch.inf
        total_CV = torch.softmax(logits_CV, dim=-1, dtype=torch.float32).cumsum(-1)
        wanted_C1 = (dice_C * total_CV[:, -1])[:, None]
        # right=True skips tokens of probability 0, which do not raise the sum.
        return torch.searchsorted(total_CV, wanted_C1, right=True).squeeze(1).clamp(max=total_CV.shape[1] - 1)
