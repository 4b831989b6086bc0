"""Judged queries of a split, to fit and choose with: which candidates are right, and how good a ranking is.

Shape suffixes: Q queries, K candidates or ranks, P right passages of a query.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.schemas import SOURCE
from stillhouse.corpus.store import Corpus
from stillhouse.retrieval.mining.relevance import AnswerSets, never_negative


class JudgedQueries:
    """The judged queries of a split: those of the source if it has any (`labelled`), else those made from the corpus.

    A passage is right for a query (in its qrels), wrong, or neither. Neither are passages with the text of a right one
    and the passage that a made query was taken from (`relevance.never_negative`).
    """

    def __init__(self, corpus: Corpus, split: str = "dev") -> None:
        queries = corpus.queries_of(split)
        queries = queries[queries["query_id"].isin(corpus.qrels_of(split)["query_id"])]
        labelled = queries[queries["origin"] == SOURCE]
        self.labelled = len(labelled) > 0
        chosen = labelled if self.labelled else queries
        self.query_ids = list(chosen["query_id"])
        self.texts = list(chosen["text"])
        offsets, rows = corpus.positives(self.query_ids)
        self._right = AnswerSets(offsets, rows)
        self.answers_QP = _padded(offsets, rows)
        """The right passages of each query, int32 [Q, P], padded with -1."""
        self._never_wrong = AnswerSets(*never_negative(corpus, self.query_ids))

    def __len__(self) -> int:
        return len(self.texts)

    def right(self, rows_QK: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which candidates are relevant, bool [Q, K]; padding (-1) is not."""
        return self._right.hold(np.arange(len(self))[:, None], rows_QK)

    def judged(self, rows_QK: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which candidates are right or wrong, bool [Q, K], and not neither."""
        neither_QK = self._never_wrong.hold(np.arange(len(self))[:, None], rows_QK) & ~self.right(rows_QK)
        return (rows_QK >= 0) & ~neither_QK

    def reciprocal_ranks(self, rows_QK: NDArray[np.int32], cutoff: int = 10) -> NDArray[np.float64]:
        """RR@cutoff of each query's ranking, float64 [Q]. Passages that are neither right nor wrong are skipped."""
        judged_QK = self.judged(rows_QK)
        rank_QK = np.cumsum(judged_QK, axis=1)
        hit_QK = self.right(rows_QK) & (rank_QK <= cutoff)
        first_Q = np.argmax(hit_QK, axis=1)
        found_Q = hit_QK.any(axis=1)
        ranks_Q = np.take_along_axis(rank_QK, first_Q[:, None], axis=1)[:, 0]
        return np.where(found_Q, 1.0 / np.maximum(ranks_Q, 1), 0.0)


def _padded(offsets: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.int32]:
    counts_Q = np.diff(offsets)
    place_QP = np.arange(counts_Q.max(initial=0)) < counts_Q[:, None]
    rows_QP = np.full(place_QP.shape, -1, dtype=np.int32)
    rows_QP[place_QP] = rows
    return rows_QP
