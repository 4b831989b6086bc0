"""Splits a passage into sentences with `sentencex`, the Wikimedia segmenter for about 300 languages.

The sentences of a corpus that can serve as queries are neither too short nor too long, and unique in the corpus.

Shapes: S sentences, P passages.
"""

import hashlib
import re
from array import array
from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import sentencex
from numpy.typing import NDArray

from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.words import count_words

# The library panics on multi-byte white space (such as a no-break space) next to an initial.
WHITE_SPACE = re.compile(r"[^\S\n]")
# Thai and Lao put a space and no mark after a sentence; the library does not know the mark of Khmer.
_ENDS = re.compile("(?<=[\u0e00-\u0eff]) +(?=[\u0e00-\u0eff])|(?<=[\u17d4\u17d5])")
MOST_WORDS = 64
"""A longer text without the end of a sentence is a table, a list or code."""


def sentence_spans(text: str, language: str = "en") -> list[tuple[int, int]]:
    """The [begin, end) character spans of the sentences of `text`, in order, without surrounding white space.

    `language` is an ISO 639-1 code; for an unknown language, the library uses its nearest relative. An empty text has
    no sentences.
    """
    spans = []
    plain, end = WHITE_SPACE.sub(" ", text), 0
    for segment in sentencex.segment(language, plain):
        ends = [0, *(mark.start() for mark in _ENDS.finditer(segment)), len(segment)]
        for first, last in pairwise(ends):
            if sentence := segment[first:last].strip():
                # The library loses line breaks after some 10,000 characters, so lengths do not add up.
                begin = plain.index(sentence, end)
                end = begin + len(sentence)
                spans.append((begin, end))
    return spans


@dataclass(frozen=True)
class QuerySentences:
    """The places of the sentences in corpus order; the text of a sentence is cut out when it is chosen.

    `rows_S` (int32) are the passages, `spans_S2` (int32) the [begin, end) characters, `numbers_S` (int32) the place of
    each among all sentences of its passage, from 0; `taken_S` marks those with the text of a labelled query.
    """

    rows_S: NDArray[np.int32]
    spans_S2: NDArray[np.int32]
    numbers_S: NDArray[np.int32]
    taken_S: NDArray[np.bool_]


def query_sentences(
    texts: Iterable[str], min_words: int, language: str, taken: Set[str] = frozenset()
) -> QuerySentences:
    """The sentences of `min_words` to `MOST_WORDS` words that no other sentence of the corpus repeats.

    A repeated sentence is boilerplate, or its passage has a duplicate: as a query it would have several right answers,
    of which only one is judged. Texts are normalised with `normalise` and compared by the first 64 bits of their
    BLAKE2 digests. `taken` are the normalised labelled queries.
    """
    rows, begins, ends, numbers = (array("i") for _ in range(4))
    digests, said = array("Q"), array("b")
    for row, text in enumerate(texts):
        for number, (begin, end) in enumerate(sentence_spans(text, language)):
            form = normalise(text[begin:end])
            if not min_words <= count_words(form) <= MOST_WORDS:
                continue
            rows.append(row)
            begins.append(begin)
            ends.append(end)
            numbers.append(number)
            said.append(form in taken)
            digests.append(int.from_bytes(hashlib.blake2b(form.encode(), digest_size=8).digest(), "little"))
    digests_S = np.frombuffer(digests, dtype=np.uint64)
    sorted_S = np.sort(digests_S)
    twice = sorted_S[1:][sorted_S[1:] == sorted_S[:-1]]
    once_S = ~np.isin(digests_S, np.unique(twice))
    rows_S, begins_S, ends_S, numbers_S = (
        np.frombuffer(values, dtype=np.int32)[once_S] for values in (rows, begins, ends, numbers)
    )
    taken_S = np.frombuffer(said, dtype=np.bool_)[once_S]
    return QuerySentences(rows_S, np.stack([begins_S, ends_S], axis=1), numbers_S, taken_S)
