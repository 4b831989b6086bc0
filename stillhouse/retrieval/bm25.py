"""BM25 by bm25s, with the English stemmer and stop words."""

from __future__ import annotations

from collections.abc import Sequence

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from stillhouse.errors import InputError


class BM25:
    """An index of passages. Okapi BM25 in Lucene's form (`bm25s` method "lucene")."""

    def __init__(self, texts: Sequence[str], k1: float, b: float) -> None:
        self._stemmer = Stemmer.Stemmer("english")
        self._index = bm25s.BM25(k1=k1, b=b)
        self._count = len(texts)
        tokens = self._tokens(texts)
        if not any(tokens):
            raise InputError("no passage has a word that BM25 could index: there are stop words and symbols alone")
        self._index.index(tokens, show_progress=False)

    def _tokens(self, texts: Sequence[str]) -> list[list[str]]:
        return bm25s.tokenize(list(texts), stopwords="en", stemmer=self._stemmer, return_ids=False, show_progress=False)

    def search(self, queries: Sequence[str], depth: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The best `depth` passages of each query: rows int32 [Q, K], padded with -1, and scores float32 [Q, K].

        A passage without any word of the query is no result.
        """
        depth = min(depth, self._count)
        if not len(queries):
            return np.empty((0, depth), np.int32), np.empty((0, depth), np.float32)
        found = self._index.retrieve(self._tokens(queries), k=depth, show_progress=False, sorted=True)
        scores_QK = np.asarray(found.scores, dtype=np.float32)
        rows_QK = np.where(scores_QK > 0, np.asarray(found.documents), -1).astype(np.int32)
        return rows_QK, scores_QK
