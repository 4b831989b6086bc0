"""BM25 by bm25s, with the English stemmer and stop words."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise

import bm25s
import numpy as np
import Stemmer
from bm25s.tokenization import Tokenized
from numpy.typing import NDArray

from stillhouse.errors import InputError
from stillhouse.monitoring.activity import doing

TEXTS_AT_ONCE = 1024


class TokenLists:
    """The tokens of many passages, as numbers end to end: 4 bytes each. Iterating gives each passage's as a list."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}
        self._numbers, self._ends = array("i"), array("q", [0])

    def add(self, lists: Iterable[list[str]]) -> None:
        for tokens in lists:
            self._numbers.extend([self.words.setdefault(token, len(self.words)) for token in tokens])
            self._ends.append(len(self._numbers))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[list[int]]:
        for begin, end in pairwise(self._ends):
            yield self._numbers[begin:end].tolist()

    def tokenized(self) -> Tokenized:
        """What bm25s takes."""
        return Tokenized(ids=self, vocab=self.words)


class BM25:
    """An index of passages. Okapi BM25 in Lucene's form (`bm25s` method "lucene")."""

    @doing("indexing for BM25")
    def __init__(self, texts: Iterable[str], k1: float, b: float) -> None:
        self._stemmer = Stemmer.Stemmer("english")
        self._index = bm25s.BM25(k1=k1, b=b)
        tokens = TokenLists()
        texts = iter(texts)
        while part := list(islice(texts, TEXTS_AT_ONCE)):
            tokens.add(self._tokens(part))
        self._count = len(tokens)
        if not tokens.words:
            raise InputError("no passage has a word that BM25 could index: there are stop words and symbols alone")
        self._index.index(tokens.tokenized(), show_progress=False)

    def _tokens(self, texts: Sequence[str]) -> list[list[str]]:
        return bm25s.tokenize(list(texts), stopwords="en", stemmer=self._stemmer, return_ids=False, show_progress=False)

    @doing("searching with BM25")
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
