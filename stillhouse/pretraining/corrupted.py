"""Makes the inputs of an objective from passages: what the encoder reads, what the decoder reads, what is predicted.

Shape suffixes: B passages, L tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.pretraining.corruption import (
    Mask,
    importance_mask,
    nested_mask,
    replace_80_10_10,
    token_mask,
    word_mask,
)
from stillhouse.pretraining.generator import Generator, ordinary_tokens
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
    """`ids_BL` int64 is the passage as it was; `attention_BL` and `special_BL` as in `PassageBatch`."""

    ids_BL: Tensor
    attention_BL: Tensor
    special_BL: Tensor
    encoder: Corrupted
    decoder: Corrupted | None


@dataclass(frozen=True)
class Corruptor:
    """Corrupts passages of a cache by an objective's row. All chance comes from the `rng` of each call."""

    cache: TokenCache
    vocabulary: int
    objective: Objective
    config: PretrainingConfig
    device: torch.device
    generator: Generator | None = None

    def __call__(self, rows: NDArray[np.int64], rng: np.random.Generator) -> CorruptedBatch:
        passages = self.cache.batch(rows, self.config.max_length)
        inner = self._mask(self.objective.encoder, passages, self.config.encoder_mask, None, rng)
        masks = [inner]
        if self.objective.decoder_corruption:
            masks.append(self._mask(self.objective.decoder_corruption, passages, self.config.decoder_mask, inner, rng))
        ids_BL, attention_BL, special_BL = (
            torch.from_numpy(array).to(self.device) for array in (passages.ids, passages.attention, passages.special)
        )
        on_device = [torch.from_numpy(mask_BL).to(self.device) for mask_BL in masks]
        replaced = self._replace(passages, masks, ids_BL, attention_BL, on_device, rng)
        inputs = [Corrupted(*pair) for pair in zip(replaced, on_device)]
        decoder = inputs[1] if len(inputs) > 1 else None
        return CorruptedBatch(ids_BL, attention_BL, special_BL, inputs[0], decoder)

    def _random(self, passages: PassageBatch, rate: float, rng: np.random.Generator) -> Mask:
        if self.config.mask_unit == "word":
            return word_mask(~passages.special, passages.word_starts, rate, rng)
        return token_mask(~passages.special, rate, rng)

    def _mask(
        self, corruption: Corruption, passages: PassageBatch, rate: float, inner: Mask | None, rng: np.random.Generator
    ) -> Mask:
        if corruption.draw == "random":
            return self._random(passages, rate, rng)
        if corruption.draw == "nested":
            assert inner is not None, "only a decoder's mask is nested"
            return nested_mask(
                inner, self.config.encoder_mask, rate, lambda second: self._random(passages, second, rng)
            )
        assert corruption.draw == "importance", corruption.draw
        assert passages.importance is not None, "the step refuses a run without importance"
        return importance_mask(~passages.special, passages.importance, rate, self.config.importance_noise, rng)

    def _replace(
        self,
        passages: PassageBatch,
        masks: list[Mask],
        ids_BL: Tensor,
        attention_BL: Tensor,
        on_device: list[Tensor],
        rng: np.random.Generator,
    ) -> list[Tensor]:
        """The corrupted ids of every mask; those that the generator fills take one forward pass together."""
        kinds = [corruption.replacement for corruption in self.objective.corruptions]
        replaced: dict[int, Tensor] = {}
        sampled = [number for number, kind in enumerate(kinds) if kind == "generator"]
        if sampled:
            assert self.generator is not None, "the step refuses a run without generator"
            filled = self.generator.replace(ids_BL, attention_BL, [on_device[number] for number in sampled], rng)
            replaced |= dict(zip(sampled, filled))
        specials = self.cache.specials
        for number, kind in enumerate(kinds):
            if kind == "mask":
                replaced[number] = ids_BL.masked_fill(on_device[number], specials.mask)
            elif kind == "80_10_10":
                ordinary = ordinary_tokens(self.vocabulary, specials)
                ids = replace_80_10_10(passages.ids, masks[number], specials.mask, ordinary, rng)
                replaced[number] = torch.from_numpy(ids).to(self.device)
        return [replaced[number] for number in range(len(kinds))]
