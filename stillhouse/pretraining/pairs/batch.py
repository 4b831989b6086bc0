"""Batches of pairs: texts assembled from spans of the token cache, as tensors.

Shape suffixes: B pairs, L tokens, K spans of a text, T all tokens of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.models.acceleration.device import on_device
from stillhouse.pretraining.tokens import ADDED, SpecialTokens


@dataclass(frozen=True)
class PairBatch:
    """Queries and their passages, each side padded to its longest text.

    `*_ids_BL` int64, `*_attention_BL` bool (true at tokens); `task_B` int64: index into `settings.TASKS`; `source_B`
    and `target_B` int64: the corpus rows of query and passage; `log_q_B` float32: the log of the probability that a
    drawn pair has this target, under the mixture of tasks.
    """

    query_ids_BL: Tensor
    query_attention_BL: Tensor
    passage_ids_BL: Tensor
    passage_attention_BL: Tensor
    task_B: Tensor
    source_B: Tensor
    target_B: Tensor
    log_q_B: Tensor

    def __len__(self) -> int:
        return len(self.task_B)

    def to(self, device: torch.device) -> PairBatch:
        """Move the batch to a device."""
        return PairBatch(*(on_device(getattr(self, each.name), device) for each in fields(self)))

    def same_target(self) -> Tensor:
        """Candidates that are not valid negatives of a query: bool [B, B], query by candidate.

        Candidate j is true for query i if it is the same passage as i's target, or the passage that the query was taken
        from, which contains the query verbatim. The diagonal is true.
        """
        targets_1B = self.target_B[None]
        return (self.target_B[:, None] == targets_1B) | (self.source_B[:, None] == targets_1B)


def assemble(
    ids_T: NDArray[np.int32],
    specials: SpecialTokens,
    begins_BK: NDArray[np.int64],
    lengths_BK: NDArray[np.int64],
    max_length: int,
    *,
    separated: bool,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Texts of K spans of the cache each, with [CLS] and [SEP], truncated to `max_length`: ids and attention [B, L].

    With `separated` another [SEP] follows the first span, unless it is empty.
    """
    room = max_length - ADDED
    extra_B = (lengths_BK[:, 0] > 0).astype(np.int64) if separated else np.zeros(len(begins_BK), dtype=np.int64)
    before_BK = np.cumsum(lengths_BK, axis=1) - lengths_BK
    before_BK[:, 1:] += extra_B[:, None]
    total_B1 = np.minimum(room, lengths_BK.sum(1) + extra_B)[:, None]
    position_1L = np.arange(int(total_B1.max()) + ADDED)[None]
    ids_BL = np.full((len(begins_BK), position_1L.shape[1]), specials.pad, dtype=np.int64)
    ids_BL[:, 0] = specials.cls
    for begin_B, length_B, before_B in zip(begins_BK.T, lengths_BK.T, before_BK.T):
        inside_BL = position_1L - 1 - before_B[:, None]
        stretch_BL = (inside_BL >= 0) & (inside_BL < length_B[:, None]) & (position_1L <= total_B1)
        ids_BL[stretch_BL] = ids_T[(begin_B[:, None] + inside_BL)[stretch_BL]]
    ids_BL[(position_1L == 1 + lengths_BK[:, :1]) & (extra_B > 0)[:, None] & (position_1L <= total_B1)] = specials.sep
    ids_BL[position_1L == total_B1 + 1] = specials.sep
    return ids_BL, position_1L <= total_B1 + 1
