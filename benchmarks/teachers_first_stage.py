"""The first stage of `teachers.py`, BM25 and a retriever with weights from dev, and its fusion with a cross-encoder.

Shape suffixes: Q questions, K candidates of a question, P pairs, F kinds of scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.rankings import first_kept
from stillhouse.retrieval.index.vector_index import VectorIndex
from stillhouse.retrieval.mining.mine_negatives import DenseRanking
from stillhouse.retrieval.mining.negatives import SPLITS, Negatives, training_queries
from stillhouse.retrieval.mining.relevance import JudgedQueries
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.retrieval.search.bm25 import BM25
from stillhouse.retrieval.search.dense import query_vectors
from stillhouse.retrieval.search.fusion import fit_weights
from stillhouse.retrieval.search.hybrid import HybridIndex, fused_scores, measure_rankings
from stillhouse.retrieval.settings import InferenceConfig

DEPTH = 100
"""Candidates of BM25 and of the retriever, as in the step `hybrid`."""
TOP = 20
"""Candidates that a cross-encoder ranks."""
CUTOFF = 10
FOLDS = 5


@dataclass(frozen=True)
class Shortlist:
    """The best passages of the first stage for the questions of a split: rows int32 [Q, K], best first.

    `scores_QKF` are those of BM25 and of the retriever, `first_QK` the first stage's weighted sum of them. `right_QK`
    marks the right passages, `known_QK` those that are known to be right or wrong.
    """

    texts: list[str]
    rows_QK: NDArray[np.int32]
    scores_QKF: NDArray[np.float32]
    first_QK: NDArray[np.float32]
    right_QK: NDArray[np.bool_]
    known_QK: NDArray[np.bool_]

    def every_second(self) -> Shortlist:
        """The shortlist of every second question, from the first on."""
        rows_QK, right_QK, known_QK = self.rows_QK[::2], self.right_QK[::2], self.known_QK[::2]
        return Shortlist(self.texts[::2], rows_QK, self.scores_QKF[::2], self.first_QK[::2], right_QK, known_QK)

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Every question with each of its candidates, [P] each, question by question."""
        return np.repeat(np.arange(len(self.rows_QK)), self.rows_QK.shape[1]), self.rows_QK.ravel()

    def reciprocal_ranks(self, scores_QK: NDArray[np.floating]) -> NDArray[np.float64]:
        """RR@10 of each question, float64 [Q], if these scores rank its candidates."""
        order_QK = np.lexsort((self.rows_QK, -np.asarray(scores_QK, np.float64)), axis=1)
        right_QK, known_QK = (np.take_along_axis(each, order_QK, axis=1) for each in (self.right_QK, self.known_QK))
        rank_QK = np.cumsum(known_QK, axis=1)
        return np.where(right_QK & (rank_QK <= CUTOFF), 1 / np.maximum(rank_QK, 1), 0.0).max(axis=1)

    def loss(self, scores_QK: NDArray[np.floating]) -> float:
        """The mean over right candidates of -log softmax among themselves and their question's wrong candidates."""
        scores_QK = np.asarray(scores_QK, dtype=np.float64)
        wrong_QK = np.where(self.known_QK & ~self.right_QK, scores_QK, -np.inf)
        query_P, column_P = np.nonzero(self.right_QK)
        own_P1 = scores_QK[query_P, column_P][:, None]
        return float(np.logaddexp.reduce(np.concatenate([own_P1, wrong_QK[query_P]], axis=1) - own_P1, axis=1).mean())

    def with_score(self, scores_QK: NDArray[np.floating] | None) -> NDArray[np.float32]:
        """The scores of BM25 and the retriever, and after them another kind of score: float32 [Q, K, F]."""
        if scores_QK is None:
            return self.scores_QKF
        return np.concatenate([self.scores_QKF, np.asarray(scores_QK, np.float32)[:, :, None]], axis=2)

    def weights(self, scores_QKF: NDArray[np.float32], of: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
        """The weights that make the right candidates most likely, float64 [F]; on the questions `of` if given."""
        chosen = np.ones(len(self.rows_QK), dtype=np.bool_) if of is None else of
        return fit_weights(scores_QKF[chosen], self.known_QK[chosen], self.right_QK[chosen])

    def cross_validated(self, scores_QKF: NDArray[np.float32]) -> NDArray[np.float64]:
        """RR@10 [Q] of the weighted sum, with weights of the other folds; question i is in fold i modulo `FOLDS`."""
        fold_Q = np.arange(len(self.rows_QK)) % FOLDS
        fused_QK = np.empty(self.rows_QK.shape)
        for fold in range(FOLDS):
            own = fold_Q == fold
            fused_QK[own] = scores_QKF[own].astype(np.float64) @ self.weights(scores_QKF, ~own)
        return self.reciprocal_ranks(fused_QK)


class FirstStage:
    """BM25 and a retriever, fused with the weights that make the right passages of dev questions most likely."""

    def __init__(self, artifacts: Path, retriever: Path, index: Path, corpus: Corpus, context: Context) -> None:
        self._corpus = corpus
        self._context = context
        self._encoder = BiEncoder.load(retriever)
        self.hybrid = HybridIndex(BM25.load(artifacts / "bm25" / "bm25"), VectorIndex(index))
        dev = JudgedQueries(corpus)
        self.fusion = measure_rankings(self.hybrid, dev, self.vectors(dev.texts), DEPTH).fusion

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return query_vectors(self._encoder, self.hybrid.index, list(texts), self._context, InferenceConfig())

    def shortlist(self, split: str) -> Shortlist:
        """The best `TOP` passages for every judged question of a split."""
        judged = JudgedQueries(self._corpus, split)
        found = self.hybrid.candidates(judged.texts, self.vectors(judged.texts), DEPTH)
        first_QK = fused_scores(self.fusion, found)
        order_QK = np.lexsort((found.rows_QK, -first_QK, found.rows_QK < 0), axis=1)[:, :TOP]
        rows_QK = np.take_along_axis(found.rows_QK, order_QK, axis=1)
        assert (rows_QK >= 0).all(), f"the corpus has fewer than {TOP} passages"
        scores_QKF = np.take_along_axis(found.scores_QKF, order_QK[:, :, None], axis=1)
        first_QK = np.take_along_axis(first_QK, order_QK, axis=1)
        return Shortlist(judged.texts, rows_QK, scores_QKF, first_QK, judged.right(rows_QK), judged.judged(rows_QK))

    def negatives(self) -> Negatives:
        """The wrong passages among the best `TOP` of every train and dev question, best first."""
        lists = [self.shortlist(split) for split in SPLITS]
        rows = [first_kept(of.rows_QK, of.known_QK & ~of.right_QK, TOP) for of in lists]
        return Negatives(training_queries(self._corpus), np.concatenate(rows))

    def pair_scores(
        self, texts: Sequence[str], query_P: NDArray[np.int64], rows_P: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """The first stage's scores of the pairs (`texts[query_P]`, passage `rows_P`), float32 [P]."""
        bm25_P = self.hybrid.bm25.score_pairs(texts, query_P, rows_P)
        dense_P = DenseRanking(self.vectors(texts), self.hybrid.index).score(query_P, rows_P)
        return (self.fusion.bm25 * bm25_P + self.fusion.dense * dense_P).astype(np.float32)
