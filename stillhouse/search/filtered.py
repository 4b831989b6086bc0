"""Exact search among some passages of an index, at no more than the cost of an exact search among all.

Shape suffixes: Q queries, K depth, N passages, F that the filter lets through, B of them at once, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import faiss
import numpy as np
from numpy.typing import NDArray

from stillhouse.evaluation.rankings import order_by_score
from stillhouse.search.exact_search import BLOCK, Block, exact_search
from stillhouse.search.vector_index import VectorIndex

if TYPE_CHECKING:
    from stillhouse.search.bm25 import BM25  # imports bm25s, which dense search does not need

FEW, FEW_CODES = 8, 1000
"""Where at most one passage of so many is let through, their vectors are fetched; otherwise all are gone through. The
second is for indexes whose vectors must be decoded."""

Ranked = tuple[NDArray[np.int32], NDArray[np.float32]]


class FilteredIndex:
    """The passages `rows_F` (ascending) of a vector index, with `VectorIndex`'s interface; rows are those of the
    corpus.

    Compares all of these passages' vectors, so that it finds what exact search over the stored vectors finds, whatever
    the kind of index. The stored ones are whole in `flat` and `hnsw`, and 8-bit or product codes in other kinds.
    """

    def __init__(self, index: VectorIndex, rows_F: NDArray[np.int32]) -> None:
        self._index, self._rows_F = index, rows_F

    def __len__(self) -> int:
        return len(self._rows_F)

    def _blocks(self) -> Iterator[Block]:
        for start in range(0, len(self), BLOCK):
            yield start, self._index.vectors(self._rows_F[start : start + BLOCK])

    def search(self, queries_QD: NDArray[np.float32], depth: int, gpu: bool = False) -> Ranked:
        """Rows int32 [Q, K] and inner products float32 [Q, K], best first. `gpu` is ignored."""
        depth = min(depth, len(self))
        if not depth:
            return np.empty((len(queries_QD), 0), np.int32), np.empty((len(queries_QD), 0), np.float32)
        queries_QD = np.ascontiguousarray(queries_QD, dtype=np.float32)
        if len(self) * (FEW if self._index.kind == "flat" else FEW_CODES) <= len(self._index):
            places_QK, scores_QK = exact_search(queries_QD, self._blocks(), depth)
            return self._rows_F[places_QK], scores_QK
        among_N = np.zeros(len(self._index), np.bool_)
        among_N[self._rows_F] = True
        if self._index.kind == "flat":
            return exact_search(queries_QD, self._index.blocks(), depth, among_N)
        selector = faiss.IDSelectorBitmap(np.packbits(among_N, bitorder="little"))  # type: ignore[arg-type, call-arg]
        index, options = self._index.exhaustive(selector)
        scores_QK, rows_QK = order_by_score(*index.search(queries_QD, depth, params=options))
        return rows_QK, scores_QK

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
            [scores_F] = self._bm25.scores_of([query], self._rows_F[None])
            least = np.partition(scores_F, -depth)[-depth] if depth else 0
            best = np.flatnonzero(scores_F >= least)  # sorting all would take longer than scoring them
            scores_F = scores_F[best]
            scores_1F, rows_1F = order_by_score(scores_F[None], np.where(scores_F > 0, self._rows_F[best], -1)[None])
            rows_QK[number], scores_QK[number] = rows_1F[0, :depth], scores_1F[0, :depth]
        return rows_QK, scores_QK

    def scores_of(self, queries: Sequence[str], rows_QK: NDArray[np.int32]) -> NDArray[np.float32]:
        return self._bm25.scores_of(queries, rows_QK)
