"""The sentences of a corpus that can stand for a query: long enough, not too long, and said in one place only.

Shapes: S sentences, P passages.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.sentences import sentence_spans

MOST_WORDS = 64
"""What has more words than this and no sentence end is a table, a list or code."""


@dataclass(frozen=True)
class QuerySentences:
    """Where the sentences stand, in corpus order; the text of one is cut out when it is chosen.

    `rows_S` (int32) are the passages, `spans_S2` (int32) the [begin, end) characters, `numbers_S` (int32) the place of
    each among all sentences of its passage, from 0.
    """

    rows_S: NDArray[np.int32]
    spans_S2: NDArray[np.int32]
    numbers_S: NDArray[np.int32]


def query_sentences(texts: Iterable[str], min_words: int, language: str) -> QuerySentences:
    """The sentences of `min_words` to `MOST_WORDS` words whose text is that of no other sentence of the corpus.

    A sentence that stands twice is boilerplate, or its passage has a twin: as a query it would have several right
    answers, of which one is judged. Texts are compared in the form of `normalise`, by their first 64 bits of BLAKE2.
    """
    rows, begins, ends, numbers = (array("i") for _ in range(4))
    digests = array("Q")
    for row, text in enumerate(texts):
        for number, (begin, end) in enumerate(sentence_spans(text, language)):
            form = normalise(text[begin:end])
            if not min_words <= form.count(" ") + 1 <= MOST_WORDS:
                continue
            rows.append(row)
            begins.append(begin)
            ends.append(end)
            numbers.append(number)
            digests.append(int.from_bytes(hashlib.blake2b(form.encode(), digest_size=8).digest(), "little"))
    _, place_S, times = np.unique(np.array(digests, dtype=np.uint64), return_inverse=True, return_counts=True)
    once_S = times[place_S] == 1 if len(times) else np.zeros(0, dtype=np.bool_)
    spans_S2 = np.stack([np.array(begins, dtype=np.int32), np.array(ends, dtype=np.int32)], axis=1)
    return QuerySentences(
        np.array(rows, dtype=np.int32)[once_S], spans_S2[once_S], np.array(numbers, dtype=np.int32)[once_S]
    )
