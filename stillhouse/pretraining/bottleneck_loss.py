"""The loss of one step of a bottleneck objective, computed in parts that the processes share.

The loss of a part is the mean over its own tokens, weighted by the part's share of the passages. If parts differ in
tokens per passage, this is not the mean over all predicted tokens of the batch, which `loss_mean: token` asks for.
`token_factors` corrects it.

Shape suffixes: B passages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.core.context import world_size
from stillhouse.models.acceleration.processes import add_up, own_parts
from stillhouse.pretraining.corrupted import Corruptor, MaskedPassages
from stillhouse.pretraining.heldout import HELDOUT, fixed_batches
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.settings import PretrainingConfig

TERMS = ("encoder", "decoder")
"""The terms of the loss that are means over tokens."""


@dataclass(frozen=True)
class DrawnPart:
    """A part of a step's batch: its number, its share of the passages, and the masked passages."""

    number: int
    share: float
    passages: MaskedPassages


class BottleneckLoss:
    """The training loss, `loss.training(loss.draw(rows, step), step)`, and the held-out loss, `loss.heldout()`.

    A batch is split into one part per process, or `gradient_accumulation_steps` parts if that is more. Each process
    computes its own parts.
    """

    def __init__(
        self,
        module: BottleneckPretraining,
        make: Corruptor,
        config: PretrainingConfig,
        heldout: NDArray[np.int64],
        steps: int,
    ) -> None:
        self._module = module
        self._make = make
        self._config = config
        self._heldout = heldout
        self._steps = steps

    def draw(self, rows_B: NDArray[np.int64], step: int) -> list[DrawnPart]:
        """Draw the parts of this process, possibly none. Does not need the model."""
        parts = np.array_split(rows_B, min(max(self._config.gradient_accumulation_steps, world_size()), len(rows_B)))
        return [
            DrawnPart(
                number,
                len(parts[number]) / len(rows_B),
                self._make.draw(parts[number], np.random.default_rng([self._config.seed, 0, step, number])),
            )
            for number in own_parts(len(parts))
        ]

    def training(self, drawn: list[DrawnPart], step: int) -> Iterator[Tensor]:
        """The losses of this process's parts. Summed over all processes they are the loss of the batch."""
        weight = {}
        if self._module.objective.bag_of_words:
            weight["bag_weight"] = bag_weight(step, self._steps, self._config.bag_weight_end)
        total = None
        if self._config.loss_mean == "token":
            total = all_tokens((self._make.predicted(part.passages) for part in drawn), self._make.device)
            add_up(total)
        for part in drawn:
            # A part has the same dropout whichever process computes it.
            torch.manual_seed((self._config.seed * 1_000_003 + step) * 1_009 + part.number)
            factors = self._factors(part.passages, part.share, total)
            yield self._module(self._make.batch(part.passages), **weight, **factors) * part.share

    def heldout(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the size and the loss of each batch of held-out passages."""
        for size, drawn in self._heldout_drawn():
            factors = self._factors(drawn, size / len(self._heldout), self._heldout_tokens)
            yield size, self._module(self._make.batch(drawn), **factors)

    def _heldout_drawn(self) -> Iterator[tuple[int, MaskedPassages]]:
        return fixed_batches(self._make.draw, self._heldout, self._config.seed, HELDOUT)

    @cached_property
    def _heldout_tokens(self) -> Tensor | None:
        if self._config.loss_mean != "token":
            return None
        return all_tokens((self._make.predicted(drawn) for _, drawn in self._heldout_drawn()), self._make.device)

    def _factors(self, drawn: MaskedPassages, share: float, total: Tensor | None) -> dict[str, dict[str, Tensor]]:
        """The module's argument `factors` for passages that are a `share` of the batch, if it needs one.

        `total` comes from `all_tokens`; None means the mean over passages.
        """
        return {} if total is None else {"factors": token_factors(self._make.predicted(drawn), share, total)}


def all_tokens(parts: Iterable[Mapping[str, int]], device: torch.device) -> Tensor:
    """The predicted tokens of all these parts, by term: float64 [2], in the order of `TERMS`."""
    counts = list(parts)
    return torch.tensor([sum(part[term] for part in counts) for term in TERMS], dtype=torch.float64, device=device)


def token_factors(part: Mapping[str, int], share: float, total: Tensor) -> dict[str, Tensor]:
    """The factor for each term of a part's loss, a float64 scalar; 1 if the part is the whole batch.

    `part`: its predicted tokens by term; `share`: its share of the batch's passages, the later weight of its loss;
    `total`: the tokens of the whole batch, from `all_tokens`.
    """
    return {term: part[term] / (tokens * share) for term, tokens in zip(TERMS, total.clamp(min=1))}


def bag_weight(step: int, steps: int, end: float) -> float:
    """The weight of the bag of words: falls from 1 along a cosine to `end` at the last step (the code of BoW).

    It depends only on the step, so accumulation and resuming do not change it.
    """
    return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * step / max(1, steps - 1)))
