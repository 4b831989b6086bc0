r"""Whether a passage holds the answer to a query, by the rules of DPR's evaluation (Karpukhin et al. 2020, §5.1).

A text is normalised to Unicode form NFD and split into runs of letters, digits and marks, and single other characters
except white space and control characters. Tokens are compared in lower case. A passage holds an answer of kind `text`
if it contains the answer's tokens side by side. It holds an answer of kind `regex` if the pattern, in NFD too, matches
anywhere in the NFD text, ignoring case, with ^ and $ at every line. An invalid pattern matches nothing (`ingest`
rejects it). The title is not part of the passage.

There are two differences. By the letter of the rules, every passage holds an answer without tokens (empty or only white
space). Here it matches nothing. And by their letter, a whole sentence of Chinese or Japanese is one token, since they
put no spaces between words. Here each character of such a script is a token (`UNSPACED`).

Tokens contain no spaces, so tokens side by side are a substring of the text with one space around each token. Every
passage and every answer is tokenized once.

Shapes: P pairs of a query and a passage.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import pandas as pd
import regex
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.corpus.answers import REGEX, TEXT, compile_answer
from stillhouse.corpus.store import Corpus
from stillhouse.corpus.words import UNSPACED

Texts = Callable[[NDArray[np.integer]], Sequence[str]]
LONGEST_SEARCH = 20.0
"""The most seconds for one pattern in one passage; a slower one would run for hours."""
PASSAGES_AT_ONCE = 1 << 15
"""Passages held in memory together."""
TOKEN = regex.compile(rf"[[\p{{L}}\p{{N}}\p{{M}}]--[{UNSPACED}]]+|[^\p{{Z}}\p{{C}}]", regex.V1)
ASCII = {
    character: f" {chr(character)} " if chr(character) in string.punctuation else " "
    for character in range(128)
    if not chr(character).isalnum()
}
"""For `str.translate`: puts spaces around ASCII punctuation, and turns control characters into spaces."""


def spaced_tokens(text: str) -> str:
    """The tokens of a text in lower case, with one space around each; " " for a text without tokens."""
    if text.isascii():  # already in form NFD
        words = text.lower().translate(ASCII).split()
        return f" {' '.join(words)} "
    # Lower-case after the split, because the lower case of a letter may depend on its neighbours.
    return f" {' '.join(TOKEN.findall(unicodedata.normalize('NFD', text)))} ".lower()


def texts_alone(corpus: Corpus) -> Texts:
    """A function that reads passage texts of a corpus without their titles."""
    return lambda rows: corpus.passages_at(rows, "text")["text"].tolist()


class AnswerMatcher:
    """Finds answers in passages. Queries are numbered as in `query_ids`.

    `answers` has the columns `query_id`, `answer` and `kind` (`text` or `regex`), as in `Corpus.answers`; answers to
    other queries are ignored. `passages` gives the texts, without titles, of ascending rows of the corpus.
    """

    def __init__(self, answers: pd.DataFrame, query_ids: Sequence[str], passages: Texts) -> None:
        number = {query_id: i for i, query_id in enumerate(query_ids)}
        assert len(number) == len(query_ids), "each query id once"
        self._passages = passages
        self._texts: list[list[str]] = [[] for _ in query_ids]
        self._patterns: list[list[regex.Pattern[str]]] = [[] for _ in query_ids]
        self.has_answers = np.zeros(len(query_ids), dtype=np.bool_)
        for query_id, answer, kind in zip(answers["query_id"], answers["answer"], answers["kind"]):
            query = number.get(query_id)
            if query is None:
                continue
            self.has_answers[query] = True
            if kind == REGEX:
                with suppress(ValueError):
                    self._patterns[query].append(compile_answer(unicodedata.normalize("NFD", answer)))
            else:
                assert kind == TEXT, kind
                tokens = spaced_tokens(answer)
                if tokens.strip() and tokens not in self._texts[query]:  # SQuAD gives an answer several times
                    self._texts[query].append(tokens)

    @classmethod
    def of(cls, corpus: Corpus, query_ids: Sequence[str]) -> AnswerMatcher:
        """A matcher with the answers of a corpus, of all splits."""
        return cls(corpus.answers, query_ids, texts_alone(corpus))

    def match(self, query_P: np.ndarray, rows_P: np.ndarray) -> NDArray[np.bool_]:
        """Whether passage `rows_P[i]` holds an answer to query `query_P[i]`; row -1, which is no passage, does not.

        Each distinct passage is read and tokenized once. Memory grows with P alone.
        """
        query_P, rows_P = np.asarray(query_P), np.asarray(rows_P)
        assert query_P.shape == rows_P.shape and query_P.ndim == 1, (query_P.shape, rows_P.shape)
        found_P = np.zeros(len(rows_P), dtype=np.bool_)
        asked = np.flatnonzero((rows_P >= 0) & self.has_answers[query_P])
        order = asked[np.argsort(rows_P[asked], kind="stable")]
        named_R, first_R = np.unique(rows_P[order], return_index=True)
        for start in range(0, len(named_R), PASSAGES_AT_ONCE):
            texts = self._passages(named_R[start : start + PASSAGES_AT_ONCE])
            ends = [*first_R[start : start + PASSAGES_AT_ONCE + 1].tolist(), len(order)]
            for number, text in enumerate(texts):
                pairs = order[ends[number] : ends[number + 1]]
                found_P[pairs] = self._held(text, query_P[pairs].tolist())
        return found_P

    def _held(self, text: str, queries: Sequence[int]) -> list[bool]:
        """Which of the queries have an answer in a passage."""
        tokens, decomposed, held = "", "", []
        for query in queries:
            answers, patterns = self._texts[query], self._patterns[query]
            tokens = tokens or (spaced_tokens(text) if answers else "")
            decomposed = decomposed or (unicodedata.normalize("NFD", text) if patterns else "")
            held.append(
                any(answer in tokens for answer in answers) or any(_found(pattern, decomposed) for pattern in patterns)
            )
        return held


def _found(pattern: regex.Pattern[str], text: str) -> bool:
    try:
        return pattern.search(text, timeout=LONGEST_SEARCH) is not None
    except TimeoutError:
        raise InputError(
            f"the answer {pattern.pattern!r} takes more than {LONGEST_SEARCH} seconds in one passage "
            f"({text[:60]!r}…); write the pattern without nested repeats"
        ) from None
