"""Rankings of documents, each represented by its best passage.

Shapes: Q queries, W queries that lack documents, K ranks of passages, T ranks of documents, P found passages.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.passage_ids import documents_in
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.rankings import Rows, repeated

Ranking = tuple[Rows, NDArray[np.float32]]
"""Rows int32 [Q, K], best first and padded with -1, and their scores."""
PASSAGES_A_DOCUMENT = 4
"""How many passages to retrieve first for each requested document."""


def has_documents(corpus: Corpus) -> bool:
    """Whether answers list documents unless someone asks for passages."""
    return "split" in corpus.facts or "documents" in corpus.facts


def documents_of(corpus: Corpus, rows: Sequence[int]) -> list[str]:
    """The document of each passage (`documents_in`)."""
    numbers = np.array(rows, dtype=np.int64)
    passages = corpus.passage_table(numbers, "passage_id", "article_id").to_pylist()
    return documents_in(passages, corpus.fields_at(numbers) if corpus.judges_whole_passages else None)


def best_of_documents(
    search: Callable[[int, NDArray[np.integer]], Ranking],
    documents_of: Callable[[list[int]], Sequence[str]],
    queries: int,
    top: int,
    most: int,
) -> Ranking:
    """The best passages of the `top` best documents of each query.

    `search(depth, queries_W)` ranks at most `most` passages for some of the queries, numbers from 0. It goes twice as
    deep for those that lack documents, until they have enough, or all. `documents_of` names the documents of passages.
    """
    best_QT = np.full((queries, top), -1, dtype=np.int32)
    scores_QT = np.full((queries, top), -np.inf, dtype=np.float32)
    queries_W, depth = np.arange(queries), min(most, PASSAGES_A_DOCUMENT * top)
    while len(queries_W):
        rows_WK, scores_WK = search(depth, queries_W)
        there_WK = rows_WK >= 0
        documents_WK = np.full(rows_WK.shape, -1, dtype=np.int32)
        documents_WK[there_WK] = np.unique(documents_of(rows_WK[there_WK].tolist()), return_inverse=True)[1]
        kept_WK = there_WK & ~repeated(documents_WK)
        enough_W = (kept_WK.sum(axis=1) >= top) | (there_WK.sum(axis=1) < depth) | (depth >= most)
        place_WK = np.cumsum(kept_WK, axis=1) - 1
        query_P, column_P = np.nonzero(kept_WK & enough_W[:, None] & (place_WK < top))
        found = queries_W[query_P], place_WK[query_P, column_P]
        best_QT[found], scores_QT[found] = rows_WK[query_P, column_P], scores_WK[query_P, column_P]
        depth, queries_W = min(most, 2 * depth), queries_W[~enough_W]
    return best_QT, scores_QT
