"""Turns passages into the inputs and targets of an objective's encoder and decoder.

Shape suffixes: B passages, L tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.models.acceleration.device import on_device
from stillhouse.pretraining.corruption import (
    Mask,
    hidden_from,
    importance_mask,
    nested_mask,
    replace_80_10_10,
    token_mask,
    word_mask,
)
from stillhouse.pretraining.generator import Generator
from stillhouse.pretraining.objectives import Corruption, Objective
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.tokens import PassageBatch, TokenCache


@dataclass(frozen=True)
class Corrupted:
    """An input after corruption: `ids_BL` int64, and `mask_BL` bool, true where it was corrupted."""

    ids_BL: Tensor
    mask_BL: Tensor


@dataclass(frozen=True)
class CorruptedBatch:
    """`ids_BL` int64 is the original passage; `attention_BL` and `special_BL` are as in `PassageBatch`.

    `hidden_BLL` is true where an enhanced decoder does not see a token from a position; padding is hidden from all.
    `generator_loss` is the masked-token loss of a generator that is trained too.
    """

    ids_BL: Tensor
    attention_BL: Tensor
    special_BL: Tensor
    encoder: Corrupted
    decoder: Corrupted | None
    hidden_BLL: Tensor | None = None
    generator_loss: Tensor | None = None


@dataclass(frozen=True)
class MaskedPassages:
    """Passages with a mask per corruption of the objective, and all other draws that need no model.

    `standing_in` maps the number of each "80_10_10" corruption to its ids; `rng` later draws the generator's samples.
    """

    passages: PassageBatch
    masks: list[Mask]
    standing_in: dict[int, NDArray[np.int64]]
    hidden_BLL: Mask | None
    rng: np.random.Generator


@dataclass(frozen=True)
class Corruptor:
    """Corrupts passages of a cache as an objective defines. All randomness comes from the `rng` of each call.

    `corruptor(rows, rng)` is `batch(draw(rows, rng))`. `draw` needs no model and no device, so it can run ahead in
    another thread.
    """

    cache: TokenCache
    vocabulary: int
    objective: Objective
    config: PretrainingConfig
    device: torch.device
    generator: Generator | None = None

    @cached_property
    def ordinary(self) -> NDArray[np.int64]:
        """The ids that random replacement draws from."""
        return np.setdiff1d(np.arange(self.vocabulary), np.array(self.cache.specials.all))

    def __call__(self, rows: NDArray[np.int64], rng: np.random.Generator) -> CorruptedBatch:
        return self.batch(self.draw(rows, rng))

    def draw(self, rows: NDArray[np.int64], rng: np.random.Generator) -> MaskedPassages:
        """Read passages and draw their masks."""
        passages = self.cache.batch(rows, self.config.passage_tokens)
        inner = self._mask(self.objective.encoder, passages, self.config.encoder_mlm_probability, None, rng)
        masks = [inner]
        if self.objective.decoder_corruption:
            masks.append(
                self._mask(self.objective.decoder_corruption, passages, self.config.decoder_mlm_probability, inner, rng)
            )
        standing_in = {
            number: replace_80_10_10(passages.ids, masks[number], self.cache.specials.mask, self.ordinary, rng)
            for number, corruption in enumerate(self.objective.corruptions)
            if corruption.replacement == "80_10_10"
        }
        hidden_BLL = None
        if self.objective.decoder == "enhanced":
            hidden_BLL = hidden_from(~passages.special, self.config.decoder_mlm_probability, rng)
            hidden_BLL |= ~passages.attention[:, None, :]
        return MaskedPassages(passages, masks, standing_in, hidden_BLL, rng)

    def batch(self, drawn: MaskedPassages) -> CorruptedBatch:
        """Move masked passages to the device and fill in the generator's tokens, if any."""
        passages = drawn.passages
        ids_BL, attention_BL, special_BL = map(self._tensor, (passages.ids, passages.attention, passages.special))
        masks = [self._tensor(mask_BL) for mask_BL in drawn.masks]
        replaced, generator_loss = self._replace(drawn, ids_BL, attention_BL, masks)
        inputs = [Corrupted(*pair) for pair in zip(replaced, masks)]
        decoder = inputs[1] if len(inputs) > 1 else None
        hidden_BLL = None if drawn.hidden_BLL is None else self._tensor(drawn.hidden_BLL)
        return CorruptedBatch(ids_BL, attention_BL, special_BL, inputs[0], decoder, hidden_BLL, generator_loss)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return on_device(array, self.device)

    def _random(self, passages: PassageBatch, rate: float, rng: np.random.Generator) -> Mask:
        if self.config.mask_unit == "word":
            return word_mask(~passages.special, passages.word_starts, rate, rng)
        return token_mask(~passages.special, rate, rng)

    def _mask(
        self, corruption: Corruption, passages: PassageBatch, rate: float, inner: Mask | None, rng: np.random.Generator
    ) -> Mask:
        if corruption.draw in ("none", "all"):
            return ~passages.special if corruption.draw == "all" else np.zeros_like(passages.special)
        if corruption.draw == "random":
            return self._random(passages, rate, rng)
        if corruption.draw == "nested":
            assert inner is not None, "only a decoder's mask is nested"
            return nested_mask(
                inner, self.config.encoder_mlm_probability, rate, lambda second: self._random(passages, second, rng)
            )
        assert corruption.draw == "importance", corruption.draw
        assert passages.importance is not None, "the step refuses a run without importance"
        return importance_mask(~passages.special, passages.importance, rate, self.config.importance_noise, rng)

    def _replace(
        self, drawn: MaskedPassages, ids_BL: Tensor, attention_BL: Tensor, masks: list[Tensor]
    ) -> tuple[list[Tensor], Tensor | None]:
        """The corrupted ids for every mask. The generator fills all its masks in one forward pass."""
        kinds = [corruption.replacement for corruption in self.objective.corruptions]
        replaced = {number: self._tensor(standing_BL) for number, standing_BL in drawn.standing_in.items()}
        generator_loss = None
        sampled = [number for number, kind in enumerate(kinds) if kind == "generator"]
        if sampled:
            assert self.generator is not None, "the step refuses a run without generator"
            chosen = [masks[number] for number in sampled]
            filled, generator_loss = self.generator.replace(ids_BL, attention_BL, chosen, drawn.rng)
            replaced |= dict(zip(sampled, filled))
        for number, kind in enumerate(kinds):
            if kind == "mask":
                replaced[number] = ids_BL.masked_fill(masks[number], self.cache.specials.mask)
        return [replaced[number] for number in range(len(kinds))], generator_loss
