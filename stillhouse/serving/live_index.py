"""A release's passages together with live documents, with the interfaces through which a release is searched.

Row N + m is live document m, after N passages; `hidden` rows are passages that a document replaced or that were
deleted. Shape suffixes: Q queries, K depth, M live documents, W those with a word, D width, P pairs, H hidden rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillhouse.evaluation.rankings import order_by_score
from stillhouse.retrieval.index.exact_search import EVEN, filled, inner_products
from stillhouse.retrieval.index.vector_index import VectorIndex
from stillhouse.retrieval.search.bm25 import BM25
from stillhouse.serving.passages import Passages

Ranked = tuple[NDArray[np.int32], NDArray[np.float32]]
SAMPLE = 1000
"""How many passages estimate the corpus's mean length, which a BM25 index does not store."""


def _joined(
    found: Ranked, hidden_H: NDArray[np.int32], scores_QM: NDArray[np.float32], first: int, depth: int
) -> Ranked:
    """The best `depth` of a ranking without its hidden rows and of live documents; a score of -inf is not a result."""
    rows_QK, scores_QK = found
    rows_QK = np.where(np.isin(rows_QK, hidden_H), np.int32(-1), rows_QK)
    live_QM = np.where(np.isfinite(scores_QM), np.arange(first, first + scores_QM.shape[1], dtype=np.int32), -1)
    scores, rows = order_by_score(
        np.concatenate([scores_QK, scores_QM], axis=1), np.concatenate([rows_QK, live_QM], axis=1)
    )
    return rows[:, :depth], scores[:, :depth]


class LiveIndex:
    """A vector index and the vectors [M, D] of live documents, with `VectorIndex`'s interface."""

    def __init__(self, index: VectorIndex, hidden_H: NDArray[np.int32], vectors_MD: NDArray[np.float32]) -> None:
        self._index, self._hidden_H, self._vectors_MD = index, hidden_H, vectors_MD
        self.width, self.kind, self.recall = index.width, index.kind, index.recall

    def __len__(self) -> int:
        return len(self._index) + len(self._vectors_MD)

    def search(self, queries_QD: NDArray[np.float32], depth: int, gpu: bool = False) -> Ranked:
        """Rows int32 [Q, K], padded with -1, and inner products float32 [Q, K], best first."""
        found = self._index.search(queries_QD, depth + len(self._hidden_H), gpu=gpu)
        queries, documents = len(queries_QD), len(self._vectors_MD)
        even_QD = filled(np.ascontiguousarray(queries_QD, np.float32), -(-queries // EVEN) * EVEN)
        even_MD = filled(self._vectors_MD, -(-documents // EVEN) * EVEN)
        scores_QM = (
            inner_products(even_QD, even_MD)[:queries, :documents] if documents else np.empty((queries, 0), np.float32)
        )
        return _joined(found, self._hidden_H, scores_QM, len(self._index), min(depth, len(self)))

    def vectors(self, rows_P: NDArray[np.int32]) -> NDArray[np.float32]:
        made_PD = np.empty((len(rows_P), self.width), np.float32)
        live_P = rows_P >= len(self._index)
        made_PD[~live_P] = self._index.vectors(rows_P[~live_P])
        made_PD[live_P] = self._vectors_MD[rows_P[live_P] - len(self._index)]
        return made_PD


class LiveBM25:
    """A BM25 index and the words of live documents, scored with the corpus's word frequencies and mean length."""

    def __init__(self, bm25: BM25, hidden_H: NDArray[np.int32], texts: Sequence[str], mean_length: float) -> None:
        self._bm25, self._hidden_H = bm25, hidden_H
        counts = [Counter(words) for words in bm25.words(texts)]
        postings: dict[str, tuple[list[int], list[int]]] = {}
        for place, each in enumerate(counts):
            for word, count in each.items():
                places, own = postings.setdefault(word, ([], []))
                places.append(place)
                own.append(count)
        # Indexed by word, because a long question would otherwise be compared with every document word by word.
        self._postings = {
            word: (np.array(places), np.array(own, np.float32)) for word, (places, own) in postings.items()
        }
        lengths_M = np.array([each.total() for each in counts], np.float32)
        self._norms_M = bm25.k1 * (1 - bm25.b + bm25.b * lengths_M / max(mean_length, 1e-9))

    def __len__(self) -> int:
        return len(self._bm25) + len(self._norms_M)

    def _live_scores(self, queries: Sequence[str]) -> NDArray[np.float32]:
        """Float32 [Q, M], 0 for a document without any word of the query."""
        scores_QM = np.zeros((len(queries), len(self._norms_M)), np.float32)
        for scores_M, words in zip(scores_QM, self._bm25.words(queries)):
            for word in words:
                if word in self._postings:
                    places_W, counts_W = self._postings[word]
                    scores_M[places_W] += self._bm25.weight(word) * counts_W / (counts_W + self._norms_M[places_W])
        return scores_QM

    def search(self, queries: Sequence[str], depth: int) -> Ranked:
        found = self._bm25.search(queries, depth + len(self._hidden_H))
        scores_QM = self._live_scores(queries)
        scores_QM = np.where(scores_QM > 0, scores_QM, np.float32(-np.inf))
        return _joined(found, self._hidden_H, scores_QM, len(self._bm25), min(depth, len(self)))

    def scores_of(self, queries: Sequence[str], rows_QK: NDArray[np.int32]) -> NDArray[np.float32]:
        live_QK = rows_QK >= len(self._bm25)
        scores_QK = self._bm25.scores_of(queries, np.where(live_QK, np.int32(-1), rows_QK))
        if live_QK.any():
            places_QK = np.where(live_QK, rows_QK - len(self._bm25), 0)
            live = np.take_along_axis(self._live_scores(queries), places_QK, axis=1)
            scores_QK = np.where(live_QK, live, scores_QK)
        return scores_QK


class LivePassages:
    """The passages of a release and live documents, each with passage_id, article_id, title and text."""

    def __init__(self, passages: Passages, hidden_H: NDArray[np.int32], documents: Sequence[dict[str, str]]) -> None:
        self._passages, self._hidden_H, self._documents = passages, hidden_H, documents

    def __len__(self) -> int:
        return len(self._passages)

    def at(self, rows: Sequence[int], *columns: str) -> list[dict[str, Any]]:
        first = len(self._passages)
        known = iter(self._passages.at([row for row in rows if row < first], *columns))
        return [
            next(known) if row < first else {name: self._documents[row - first][name] for name in columns}
            for row in rows
        ]

    def rows_within(self, id_prefix: str, article: str) -> NDArray[np.int32]:
        rows_F = self._passages.rows_within(id_prefix, article)
        live = [
            len(self._passages) + place
            for place, each in enumerate(self._documents)
            if each["passage_id"].startswith(id_prefix) and article in ("", each["article_id"])
        ]
        return np.concatenate([rows_F[~np.isin(rows_F, self._hidden_H)], np.array(live, np.int32)])
