"""The loss of one step of a bottleneck objective, computed in parts that the processes share.

The loss of a part is the mean over its passages, weighted by the part's share of the passages.

Shape suffixes: B passages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.core.context import world_size
from stillhouse.models.acceleration.processes import own_parts
from stillhouse.pretraining.corrupted import Corruptor, MaskedPassages
from stillhouse.pretraining.heldout import HELDOUT, fixed_batches
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.training.joint_loss import Losses


@dataclass(frozen=True)
class DrawnPart:
    """A part of a step's batch: its number, its share of the passages, and the masked passages."""

    number: int
    share: float
    passages: MaskedPassages


@dataclass(frozen=True)
class BottleneckLoss:
    """The training loss, `loss.training(loss.draw(rows, step), step)`, and the held-out loss, `loss.heldout()`.

    A batch is split into one part per process, or `gradient_accumulation_steps` parts if that is more. Each process
    computes its own parts.
    """

    module: BottleneckPretraining
    make: Corruptor
    config: PretrainingConfig
    measured: NDArray[np.int64]
    """The held-out rows."""

    def draw(self, rows_B: NDArray[np.int64], step: int) -> list[DrawnPart]:
        """Draw the parts of this process, possibly none. Does not need the model."""
        parts = np.array_split(rows_B, min(max(self.config.gradient_accumulation_steps, world_size()), len(rows_B)))
        return [
            DrawnPart(
                number,
                len(parts[number]) / len(rows_B),
                self.make.draw(parts[number], np.random.default_rng([self.config.seed, 0, step, number])),
            )
            for number in own_parts(len(parts))
        ]

    def training(self, drawn: list[DrawnPart], step: int) -> Losses:
        """The losses of this process's parts. Summed over all processes they are the loss of the batch."""
        return Losses(len(drawn), self._of(drawn, step))

    def _of(self, drawn: list[DrawnPart], step: int) -> Iterator[Tensor]:
        for part in drawn:
            # A part has the same dropout whichever process computes it.
            torch.manual_seed((self.config.seed * 1_000_003 + step) * 1_009 + part.number)
            yield self.module(self.make.batch(part.passages)) * part.share

    def heldout(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the size and the loss of each batch of held-out passages."""
        for size, drawn in fixed_batches(self.make.draw, self.measured, self.config.seed, HELDOUT):
            yield size, self.module(self.make.batch(drawn))
