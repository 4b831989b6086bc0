"""BM25 with bm25s, over the terms that `stillhouse.corpus.words` finds in a text of any script.

Terms get Snowball's stemmer by PyStemmer, which helps in every language that was measured, and bm25s's stop words in
English and German (docs/languages.md), so other lists are left out.
"""

import json
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import Stemmer
from numpy.typing import NDArray

from stillhouse.core.arrays import save_array
from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.words import terms_in

WITH_STOP_WORDS = ("en", "de")
PASSAGES_SAMPLED, CHARACTERS_SAMPLED = 500, 200
"""The language of a corpus is detected from this many passages, and this many characters at the beginning of each."""


@dataclass(frozen=True)
class Terms:
    """How texts become the terms of an index, which stores it: queries are always cut as its passages were.

    `language` is an ISO 639-1 code, or "" if it is unknown. `stemmer` and `stop_words` are the same code, or "" for
    none.
    """

    language: str
    stemmer: str
    stop_words: str

    @classmethod
    def of_language(cls, language: str) -> Self:
        """The stemmer and the stop words of a language, as far as there are any."""
        try:
            Stemmer.Stemmer(language)
        except KeyError:
            return cls(language, "", "")
        return cls(language, language, language if language in WITH_STOP_WORDS else "")

    def __str__(self) -> str:
        stemmed = "stemmed" if self.stemmer else "not stemmed"
        return f"language {self.language or 'unknown'}: {stemmed}{', without stop words' * bool(self.stop_words)}"

    def of(self, texts: Iterable[str]) -> list[list[str]]:
        """The terms of each text, stemmed, without stop words. Raises `KeyError` for an unknown stemmer or list.

        >>> Terms.of_language("en").of(["The stills of 東京都"])
        [['still', '東京', '京都']]
        """
        left_out = frozenset({"": [], "en": STOPWORDS_EN, "de": STOPWORDS_GERMAN}[self.stop_words])
        lists = [[term for term in terms_in(text) if term not in left_out] for text in texts]
        if not self.stemmer:
            return lists
        stemmer = Stemmer.Stemmer(self.stemmer)  # a new one for each call, since threads cannot share it
        distinct = list({term: None for terms in lists for term in terms})
        stems = dict(zip(distinct, stemmer.stemWords(distinct)))
        return [[stems[term] for term in terms] for terms in lists]


def language_of(texts: Sequence[str]) -> str:
    """The main language of texts as an ISO 639-1 code, by py3langid; "" without any letter."""
    sample = " ".join(text[:CHARACTERS_SAMPLED] for text in texts)
    if not any(map(str.isalpha, sample)):
        return ""
    import py3langid  # loads its model at the first call, which takes a second

    # It also knows languages without such a code, among them relatives of Chinese in the same script.
    code = next(code for code, _ in py3langid.rank(sample) if len(code) == 2)
    return {"nb": "no", "nn": "no"}.get(code, code)  # Snowball has one stemmer for both forms of Norwegian


_jax: Any = sys.modules.get("jax")
sys.modules["jax"] = None  # type: ignore[assignment]
try:  # bm25s would use JAX, which takes most of a GPU's memory and is ten times slower at sorting few scores
    import bm25s
    from bm25s.stopwords import STOPWORDS_EN, STOPWORDS_GERMAN
    from bm25s.tokenization import Tokenized
finally:
    sys.modules.pop("jax", None)
    if _jax is not None:
        sys.modules["jax"] = _jax

TEXTS_AT_ONCE = 1024
PARAMETERS = ("k1", "b", "delta", "method", "idf_method", "dtype", "int_dtype", "backend")
"""The data that bm25s stores besides an index's arrays."""
TERMS = "terms.json"
"""The file with the `Terms` of an index."""


class TokenLists:
    """The tokens of many passages as concatenated numbers, 4 bytes each. Iterating yields a list per passage."""

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


class BM25:
    """An index of passages, scored by Okapi BM25 in Lucene's form (`bm25s` method "lucene")."""

    def __init__(self, index: bm25s.BM25, count: int, terms: Terms) -> None:
        self._index = index
        self._count = count
        self.terms = terms

    @classmethod
    @doing("indexing for BM25")
    def of(cls, texts: Iterable[str], k1: float, b: float, language: str = "en") -> Self:
        """Index passages in a language, an ISO 639-1 code. Raises `InputError` if none has a word."""
        terms, tokens = Terms.of_language(language), TokenLists()
        texts = iter(texts)
        while part := list(islice(texts, TEXTS_AT_ONCE)):
            tokens.add(terms.of(part))
        if not tokens.words:
            raise InputError("no passage has a word that BM25 can index: they hold only stop words and symbols")
        index = bm25s.BM25(k1=k1, b=b)
        index.index(Tokenized(ids=tokens, vocab=tokens.words), show_progress=False)
        return cls(index, len(tokens), terms)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Open what `save` wrote; the arrays stay on disk. Raises `InputError` for any other folder."""
        try:
            index = bm25s.BM25.load(folder, mmap=True, show_progress=False)
            terms = Terms(**json.loads((folder / TERMS).read_text(encoding="utf-8")))
            terms.of([])
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{folder} holds no BM25 index; `stillhouse bm25` makes one") from None
        return cls(index, int(index.scores["num_docs"]), terms)

    def save(self, folder: Path) -> None:
        """Write the files that `bm25s.BM25.load` reads: arrays and JSON, nothing that executes when it is loaded.

        bm25s itself would not notice a full disk (`stillhouse.core.arrays`).
        """
        folder.mkdir(exist_ok=True)
        index = self._index
        for name in ("data", "indices", "indptr"):
            save_array(folder / f"{name}.csc.index.npy", index.scores[name])
        write_json(folder / "vocab.index.json", index.vocab_dict)
        kept = {name: getattr(index, name) for name in PARAMETERS}
        write_json(folder / "params.index.json", kept | {"num_docs": self._count, "version": bm25s.__version__})
        write_json(folder / TERMS, asdict(self.terms))

    def __len__(self) -> int:
        return self._count

    @doing("searching with BM25")
    def search(self, queries: Sequence[str], depth: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The best `depth` passages of each query: rows int32 [Q, K], padded with -1, and scores float32 [Q, K].

        Passages without any word of the query are left out.
        """
        depth = min(depth, self._count)
        if not len(queries):
            return np.empty((0, depth), np.int32), np.empty((0, depth), np.float32)
        tokens = self.terms.of(queries)
        backend = "auto" if self._index.backend == "numba" else "numpy"
        found = self._index.retrieve(tokens, k=depth, show_progress=False, sorted=True, backend_selection=backend)
        scores_QK = np.asarray(found.scores, dtype=np.float32)
        rows_QK = np.where(scores_QK > 0, np.asarray(found.documents), -1).astype(np.int32)
        return rows_QK, scores_QK

    def scores_of(self, queries: Sequence[str], rows_QK: NDArray[np.int32]) -> NDArray[np.float32]:
        """The scores of given passages, float32 [Q, K]; 0 for padding (-1) and for passages without a query word.

        Each query is scored against the whole corpus. This costs its words' postings and an array of the corpus's
        length.
        """
        scores = [self._scores(words, rows_K) for words, rows_K in zip(self.terms.of(queries), rows_QK)]
        return np.stack(scores) if scores else np.zeros(rows_QK.shape, dtype=np.float32)

    def _scores(self, words: list[str], rows_K: NDArray[np.int32]) -> NDArray[np.float32]:
        """The scores of one query's passages, float32 [K]."""
        known = self._index.get_tokens_ids(words)
        if not known:
            return np.zeros(rows_K.shape, dtype=np.float32)
        return np.where(rows_K >= 0, self._index.get_scores_from_ids(known)[rows_K], np.float32(0))

    @doing("scoring with BM25")
    def score_pairs(
        self, queries: Sequence[str], query_P: NDArray[np.int64], row_P: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """The scores of the pairs (`queries[query_P]`, passage `row_P`), float32 [P]."""
        scores_P = np.zeros(len(query_P), dtype=np.float32)
        order_P = np.argsort(query_P, kind="stable")
        asked_Q, first_Q = np.unique(query_P[order_P], return_index=True)
        words_Q = self.terms.of([queries[query] for query in asked_Q.tolist()])
        for words, places in zip(words_Q, np.split(order_P, first_Q[1:])):
            scores_P[places] = self._scores(words, row_P[places])
        return scores_P
