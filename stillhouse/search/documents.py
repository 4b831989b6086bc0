"""Rankings of documents, each represented by its best passage.

Shapes: Q queries, K ranks of passages, T ranks of documents.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.passage_ids import own_articles
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.rankings import Rows, first_kept, repeated

Ranking = tuple[Rows, NDArray[np.float32]]
"""Rows int32 [Q, K], best first and padded with -1, and their scores."""
PASSAGES_A_DOCUMENT = 4
"""How many passages to retrieve first for each requested document."""


def has_documents(corpus: Corpus) -> bool:
    """Whether answers list documents unless someone asks for passages."""
    return "split" in corpus.facts or "documents" in corpus.facts


def documents_of(corpus: Corpus, rows: Sequence[int]) -> list[str]:
    """The article of each passage, or its own id if it has none."""
    table = corpus.passage_table(np.array(rows, dtype=np.int64), "passage_id", "article_id")
    return own_articles(*table.columns).to_pylist()


def best_of_documents(
    search: Callable[[int], Ranking], documents_of: Callable[[list[int]], Sequence[str]], top: int, most: int
) -> Ranking:
    """The best passages of the `top` best documents of each query.

    `search(depth)` ranks at most `most` passages. It goes twice as deep until it has found enough documents, or all.
    `documents_of` names the documents of passages.
    """
    depth = min(most, PASSAGES_A_DOCUMENT * top)
    while True:
        rows_QK, scores_QK = search(depth)
        there_QK = rows_QK >= 0
        documents_QK = np.full(rows_QK.shape, -1, dtype=np.int32)
        documents_QK[there_QK] = np.unique(documents_of(rows_QK[there_QK].tolist()), return_inverse=True)[1]
        kept_QK = there_QK & ~repeated(documents_QK)
        enough_Q = (kept_QK.sum(axis=1) >= top) | (there_QK.sum(axis=1) < depth)
        if enough_Q.all() or depth >= most:
            break
        depth = min(most, 2 * depth)
    rows_QT = first_kept(rows_QK, kept_QK, top)
    scores_QT = np.full(rows_QT.shape, -np.inf, dtype=np.float32)
    scores_QT[rows_QT >= 0] = scores_QK[kept_QK & (np.cumsum(kept_QK, axis=1) <= top)]
    return rows_QT, scores_QT
