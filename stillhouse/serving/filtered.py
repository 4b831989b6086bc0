"""Exact search among some passages of an index, at a cost that grows with their number.

Shape suffixes: Q queries, K depth, F passages that the filter lets through, B of them at once, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stillhouse.evaluation.rankings import order_by_score
from stillhouse.search.bm25 import BM25
from stillhouse.search.exact_search import BLOCK, Block, exact_search
from stillhouse.search.vector_index import VectorIndex

Ranked = tuple[NDArray[np.int32], NDArray[np.float32]]


class FilteredIndex:
    """The passages `rows_F` (ascending) of a vector index, with `VectorIndex`'s interface; rows are those of the
    corpus.

    Compares the stored vectors one by one, so the search is exact even in an approximate index.
    """

    def __init__(self, index: VectorIndex, rows_F: NDArray[np.int32]) -> None:
        self._index, self._rows_F = index, rows_F

    def __len__(self) -> int:
        return len(self._rows_F)

    def _blocks(self) -> Iterator[Block]:
        for start in range(0, len(self), BLOCK):
            yield start, self._index.vectors(self._rows_F[start : start + BLOCK])

    def search(self, queries_QD: NDArray[np.float32], depth: int, gpu: bool = False) -> Ranked:
        """Rows int32 [Q, K] and inner products float32 [Q, K], best first. `gpu` is ignored: few passages are left."""
        depth = min(depth, len(self))
        if not depth:
            return np.empty((len(queries_QD), 0), np.int32), np.empty((len(queries_QD), 0), np.float32)
        places_QK, scores_QK = exact_search(np.ascontiguousarray(queries_QD), self._blocks(), depth)
        return self._rows_F[places_QK], scores_QK

    def products(
        self, vectors_QD: NDArray[np.float32], query_P: NDArray[np.integer], row_P: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        return self._index.products(vectors_QD, query_P, row_P)


class FilteredBM25:
    """The passages `rows_F` (ascending) of a BM25 index, scored with the word frequencies of the whole corpus."""

    def __init__(self, bm25: BM25, rows_F: NDArray[np.int32]) -> None:
        self._bm25, self._rows_F = bm25, rows_F

    def __len__(self) -> int:
        return len(self._rows_F)

    def search(self, queries: Sequence[str], depth: int) -> Ranked:
        """Rows int32 [Q, K], padded with -1, and scores float32 [Q, K]. Passages without a query word are left out."""
        depth = min(depth, len(self))
        rows_QK = np.empty((len(queries), depth), np.int32)
        scores_QK = np.empty((len(queries), depth), np.float32)
        for number, query in enumerate(queries):  # a filter may keep nearly all passages
            scores_1F = self._bm25.scores_of([query], self._rows_F[None])
            rows_1F = np.where(scores_1F > 0, self._rows_F, np.int32(-1))
            scores_1F, rows_1F = order_by_score(scores_1F, rows_1F)
            rows_QK[number], scores_QK[number] = rows_1F[0, :depth], scores_1F[0, :depth]
        return rows_QK, scores_QK

    def scores_of(self, queries: Sequence[str], rows_QK: NDArray[np.int32]) -> NDArray[np.float32]:
        return self._bm25.scores_of(queries, rows_QK)
