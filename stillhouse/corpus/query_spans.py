"""Spans of words as queries: a crop of a passage asks for that passage (Izacard et al. 2022, §3.1).

Contriever crops both sides, independently, because both are trained on as they are drawn. Here the passages are those
of the corpus, which later steps search: the query is the crop, and the passage stays whole. It is at least twice as
long as its crop. The crops of a passage are drawn independently, so they may overlap.

Shapes: P passages, A articles, K spans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.article_layout import ArticleLayout
from stillhouse.corpus.cleaning import normalise


class Spans(NamedTuple):
    """Spans by passage, then by place: rows int64 [K], and the first word and the one behind the last, int64 [K, 2]."""

    rows_K: NDArray[np.int64]
    words_K2: NDArray[np.int64]


def word_counts(texts: Iterable[str]) -> NDArray[np.int32]:
    """The words of each text between white space, int32."""
    return np.fromiter((len(text.split()) for text in texts), np.int32)


def draw_spans(
    words_P: NDArray[np.int32],
    possible_P: NDArray[np.bool_],
    layout: ArticleLayout,
    lengths: tuple[int, int],
    most: int,
    random: np.random.Generator,
) -> Spans:
    """At most `most` spans of each article, of `lengths` words (at least, at most), where `possible_P` allows it.

    Passage, length and place are uniform. A passage of fewer than twice the least words gives none, and of two spans
    that begin at the same word one is kept.
    """
    least, longest = lengths
    rows = layout.passages_P
    rows = rows[(possible_P & (words_P >= 2 * least))[rows]]
    sizes_A = np.bincount(layout.article_P[rows], minlength=layout.articles)
    article_K = np.repeat(np.flatnonzero(sizes_A), most)
    rows_K = rows[(np.cumsum(sizes_A) - sizes_A)[article_K] + random.integers(sizes_A[article_K])]
    length_K = random.integers(least, np.minimum(words_P[rows_K] // 2, longest) + 1)
    begin_K = random.integers(words_P[rows_K] - length_K + 1)
    # One of two that begin together: `unique` finds the one that was drawn first.
    _, kept = np.unique(np.stack([rows_K, begin_K], axis=1), axis=0, return_index=True)
    return Spans(rows_K[kept], np.stack([begin_K, begin_K + length_K], axis=1)[kept])


def found_elsewhere(
    spans: Sequence[str], rows_K: NDArray[np.int64], least: int, texts: Iterable[str]
) -> NDArray[np.bool_]:
    """Whether another passage than its own, of all passages' `texts`, says what a span says; bool [K].

    Both are compared in the form of `normalise`. Every span has at least `least` words.
    """
    words_K = [normalise(span).split() for span in spans]
    least = min([least, *map(len, words_K)])
    by_opening = defaultdict(list)
    for number, words in enumerate(words_K):
        by_opening[tuple(words[:least])].append(number)
    found_K = np.zeros(len(spans), dtype=np.bool_)
    for row, text in enumerate(texts if spans else ()):
        said = normalise(text).split()
        for begin, opening in enumerate(zip(*(said[place:] for place in range(least)))):
            for number in by_opening.get(opening, ()):
                words = words_K[number]
                if row != rows_K[number] and said[begin : begin + len(words)] == words:
                    found_K[number] = True
    return found_K
