"""Training groups: a query, one of its positives and hard negatives drawn for a step.

Shapes: Q queries of a split, B examples of a step, K candidates of a query (column 0 its positive), D negatives' depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError
from stillhouse.retrieval.negatives import Negatives
from stillhouse.retrieval.relevance import AnswerSets, never_negative


@dataclass(frozen=True)
class Groups:
    """Examples of one step. Where `candidate_BK` is false the row is -1: a query with too few negatives."""

    examples_B: NDArray[np.int64]
    rows_BK: NDArray[np.int32]
    candidate_BK: NDArray[np.bool_]
    columns_BK: NDArray[np.int64]
    """The column of `negatives/rows.npy` that each negative was drawn from; 0 under the positive."""
    positive_B: NDArray[np.int64]
    """The place of each positive in the split's list of positives."""


class GroupSampler:
    """Draws groups for the queries of a split; a draw depends on (seed, stream) alone.

    `count` negatives are drawn without repeats from a query's best `depth`. Raises `InputError` for an empty split and
    for queries that the negatives do not cover.
    """

    def __init__(self, corpus: Corpus, negatives: Negatives, split: str, count: int, depth: int, seed: int) -> None:
        chosen = np.flatnonzero((negatives.queries["split"] == split).to_numpy())
        if not len(chosen):
            raise InputError(
                f"the corpus has no {split} queries; training needs train and dev queries with qrels: "
                "`stillhouse ingest` makes them of the corpus itself with `queries: pairs`"
            )
        ids = negatives.queries["query_id"].to_numpy()[chosen]
        queries = corpus.queries_of(split)
        if list(ids) != list(queries["query_id"]):
            raise InputError(f"the negatives do not cover the {split} queries of this corpus; make them again")
        self.query_numbers_Q = chosen
        self.texts = queries["text"].to_numpy(dtype=object)
        self.offsets, self.positives = corpus.positives(ids)
        self._answers = AnswerSets(*never_negative(corpus, list(ids)))
        self.rows_QD = negatives.rows_QD[chosen[0] : chosen[-1] + 1, :depth]
        assert len(self.rows_QD) == len(chosen), "the queries of a split lie together"
        self._count = count
        self._seed = seed

    def __len__(self) -> int:
        return len(self.texts)

    def without_negatives(self) -> int:
        """How many queries have no negative at all; they are trained on in-batch negatives alone."""
        return int(((self.rows_QD >= 0).sum(axis=1) == 0).sum())

    def draw(self, examples_B: NDArray[np.int64], stream: int) -> Groups:
        """The groups of `examples_B` (query numbers within the split)."""
        random = np.random.default_rng([self._seed, stream])
        positives = np.diff(self.offsets)[examples_B]
        positive_B = self.offsets[examples_B] + (random.random(len(examples_B)) * positives).astype(np.int64)
        rows_BD = np.asarray(self.rows_QD[examples_B])
        order_BD = random.random(rows_BD.shape)
        order_BD[rows_BD < 0] = 2.0
        columns_BN = np.argsort(order_BD, axis=1, kind="stable")[:, : self._count]
        negatives_BN = np.take_along_axis(rows_BD, columns_BN, axis=1)
        rows_BK = np.concatenate([self.positives[positive_B][:, None], negatives_BN], axis=1)
        columns_BK = np.concatenate([np.zeros((len(examples_B), 1), np.int64), columns_BN], axis=1)
        return Groups(examples_B, rows_BK, rows_BK >= 0, columns_BK, positive_B)

    def relevant(self, examples_B: NDArray[np.int64], rows_M: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether each passage of `rows_M` is a right answer to each query (`never_negative`), [B, M]."""
        return self._answers.hold(examples_B[:, None], rows_M[None, :])
