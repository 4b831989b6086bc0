"""The loss of one step of pair tasks: one softmax over the whole batch, encoded in parts.

Shape suffixes: B pairs, N queries and passages, L tokens, P texts of a part, D width of the vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.models.acceleration.device import on_device
from stillhouse.models.acceleration.unpadded import leaves_padding_out
from stillhouse.pretraining.heldout import HELDOUT, fixed_batches
from stillhouse.pretraining.pairs.batch import PairBatch
from stillhouse.pretraining.pairs.model import PairPretraining
from stillhouse.pretraining.pairs.task import PairMaker
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.training.joint_loss import BatchTexts, Losses, Part, joint_loss, joint_losses, make_parts


@dataclass(frozen=True)
class PairLoss:
    """The training loss, `loss.training(loss.draw(rows, step), step)`, and the held-out loss, `loss.heldout()`.

    Every process draws the whole batch, since its passages serve as negatives, and encodes its own parts of it.
    """

    towers: PairPretraining
    maker: PairMaker
    config: PretrainingConfig
    measured: NDArray[np.int64]
    """The held-out rows."""

    def draw(self, rows_B: NDArray[np.int64], step: int) -> PairBatch:
        """Draw a pair for every row, in CPU memory. Does not need the model."""
        return self.maker.draw(rows_B, np.random.default_rng([self.config.seed, 0, step, 0]))

    def training(self, drawn: PairBatch, _: int) -> Losses:
        """This process's share of the step's loss (`joint_losses`)."""
        parts, vectors_ND, loss = self._batch(drawn, training=True)
        return joint_losses(parts, vectors_ND, loss, again=self.config.gradient_cache)

    def heldout(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the size and the loss of each batch of held-out rows, the same in every process."""
        for size, drawn in fixed_batches(self.maker.draw, self.measured, self.config.seed, HELDOUT):
            yield size, joint_loss(*self._batch(drawn, training=False))

    def _batch(self, drawn: PairBatch, training: bool) -> tuple[list[Part], Tensor, Callable[[Tensor], Tensor]]:
        """The parts of a batch's queries and passages, a buffer for their vectors, and the loss function."""
        batch, device = self.maker.batch(drawn), self.maker.device
        count = len(batch)

        def loss(vectors_ND: Tensor) -> Tensor:
            return self.towers.loss(vectors_ND[:count], vectors_ND[count:], batch)

        # Count lengths in CPU memory, so that no part waits for the device.
        queries, passages = (each.sum(1).numpy() for each in (drawn.query_attention_BL, drawn.passage_attention_BL))
        of_queries = self.towers.queries, queries, (batch.query_ids_BL, batch.query_attention_BL)
        of_passages = self.towers.passages, passages, (batch.passage_ids_BL, batch.passage_attention_BL)
        kinds = [BatchTexts(of[1], partial(_encode, *of)) for of in (of_queries, of_passages)]
        unpadded = leaves_padding_out(self.towers, self.config.padding, device)
        parts = make_parts(kinds, self.config.mini_batch_size, unpadded=unpadded, device=device, training=training)
        return parts, torch.zeros(2 * count, self.towers.passage_tower.width, device=device), loss


def _encode(
    tower: Callable[[Tensor, Tensor], Tensor],
    lengths_B: NDArray[np.int64],
    tokens_BL: tuple[Tensor, ...],
    rows_P: NDArray[np.int64],
) -> Tensor:
    """The vectors [P, D] of some texts, padded to the longest; `tokens_BL`, ids and attention, are on the device."""
    longest = int(lengths_B[rows_P].max())
    ids_PL, attention_PL = (each[on_device(rows_P, each.device), :longest] for each in tokens_BL)
    return tower(ids_PL, attention_PL)
