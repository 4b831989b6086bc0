"""The loss of queries against the fixed passage vectors of an index.

A training step encodes only its queries and computes one matrix product, so all passages of an index, or up to
`at_once` of them, can be negatives. `query_training` uses this to train a query tower alone.

Shape suffixes: B queries, N passages of a step, P pairs of a query and a passage, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.relevance import never_negative
from stillhouse.models.pooling import normalized
from stillhouse.search.vector_index import VectorIndex

RUN = 4096
"""Consecutive passages of a sample, read from the disk together."""
SAMPLES = 2**34
"""The second part of the seed of a step's sample; larger than any epoch."""

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Places [P] of queries in a batch, and a passage [P] for each: its row in the corpus or its column in a step."""


@dataclass(frozen=True)
class RowLists:
    """Some passages of every query; query i has `rows[offsets[i]:offsets[i + 1]]`."""

    offsets: NDArray[np.int64]
    rows: NDArray[np.int32]

    def pairs(self, queries_B: NDArray[np.int64]) -> Pairs:
        """The passages of some queries, each with the query's place in `queries_B`."""
        counts_B = self.offsets[queries_B + 1] - self.offsets[queries_B]
        place_P = np.repeat(np.arange(len(queries_B)), counts_B)
        inside_P = np.arange(len(place_P)) - np.repeat(np.cumsum(counts_B) - counts_B, counts_B)
        return place_P, self.rows[self.offsets[queries_B][place_P] + inside_P].astype(np.int64)


@dataclass(frozen=True)
class Targets:
    """The passages that a step ranks its queries among: vectors [N, D] and their corpus rows `rows_N`, ascending.

    `right` marks right answers. `never_negative` marks passages that are not negatives; it includes `right`."""

    vectors_ND: Tensor
    rows_N: NDArray[np.int64]
    right: Pairs
    never_negative: Pairs

    def columns(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """The columns of passages, given by row, that belong to the step."""
        return np.searchsorted(self.rows_N, rows)


@dataclass
class FixedPassages:
    """The vectors of an index, and the right answers to the queries `query_ids`, each of which has at least one.

    If an index has more than `at_once` passages, each step draws a sample from (seed, step) alone and adds the right
    answers and the rows that it is asked to hold. Vectors are fp32 for every kind of index; a flat index stays on disk.
    """

    index: VectorIndex
    corpus: Corpus
    query_ids: Sequence[str]
    at_once: int
    seed: int
    device: torch.device

    def __post_init__(self) -> None:
        self._right = RowLists(*self.corpus.positives(self.query_ids))
        self._never_negative = RowLists(*never_negative(self.corpus, self.query_ids))
        whole = len(self.index) <= self.at_once
        self._whole_ND = self._vectors(np.arange(len(self.index))) if whole else None

    def targets(self, queries_B: NDArray[np.int64], step: int, held: NDArray[np.integer] | None = None) -> Targets:
        """The passages that a step ranks some queries among. It includes the rows `held`."""
        right, never = self._right.pairs(queries_B), self._never_negative.pairs(queries_B)
        if self._whole_ND is not None:
            return Targets(self._whole_ND, np.arange(len(self.index)), right, never)
        wanted = [self._sample(step), right[1], *([] if held is None else [np.asarray(held, dtype=np.int64).ravel()])]
        rows_N = np.unique(np.concatenate(wanted))
        places = np.searchsorted(rows_N, never[1])
        there = (places < len(rows_N)) & (rows_N[np.minimum(places, len(rows_N) - 1)] == never[1])
        return Targets(
            self._vectors(rows_N),
            rows_N,
            (right[0], np.searchsorted(rows_N, right[1])),
            (never[0][there], places[there]),
        )

    def _sample(self, step: int) -> NDArray[np.int64]:
        runs = -(-len(self.index) // RUN)
        drawn = np.random.default_rng([self.seed, SAMPLES, step]).permutation(runs)[: max(1, self.at_once // RUN)]
        rows = (np.sort(drawn)[:, None] * RUN + np.arange(RUN)).ravel()
        return rows[rows < len(self.index)]

    def _vectors(self, rows_N: NDArray[np.int64]) -> Tensor:
        whole = self.index.kind == "flat" and len(rows_N) == len(self.index)
        found_ND = self.index.mapped() if whole else self.index.vectors(rows_N.astype(np.int32))
        return torch.from_numpy(found_ND).to(self.device)


def cut_to_index(queries_BD: Tensor, width: int, normalize: bool) -> Tensor:
    """Cut query vectors to an index's width, like `vector_index.cut` but with gradients."""
    if width == queries_BD.shape[1]:
        return queries_BD
    return normalized(queries_BD[:, :width]) if normalize else queries_BD[:, :width]


def fixed_passages_loss(scores_BN: Tensor, right: Pairs, never_negative: Pairs) -> Tensor:
    """-log e^s(q, d+) / (e^s(q, d+) + sum over negatives n of e^s(q, n)), the mean over a query's right answers d+ and
    then over the queries.

    `scores_BN` are already divided by the temperature. All columns except `never_negative` are negatives, so the right
    answers of a query do not push one another away.
    """
    masked_BN = scores_BN.clone()
    masked_BN[_on(never_negative, scores_BN)] = torch.finfo(scores_BN.dtype).min
    against_B = masked_BN.logsumexp(dim=1)
    query_P, column_P = _on(right, scores_BN)
    loss_P = functional.softplus(against_B[query_P] - scores_BN[query_P, column_P])
    counts_B = torch.bincount(query_P, minlength=len(scores_BN))
    return (loss_P / counts_B[query_P]).sum() / len(scores_BN)


def _on(pairs: Pairs, like: Tensor) -> tuple[Tensor, Tensor]:
    query_P, column_P = (torch.from_numpy(np.asarray(part, dtype=np.int64)).to(like.device) for part in pairs)
    return query_P, column_P
