"""Spans of words as queries: a crop of a passage asks for that passage (Izacard et al. 2022, §3.1).

Contriever crops both sides independently, because it trains on the crops themselves. Here later steps search the
passages of the corpus, so only the query is a crop and the passage stays whole. A passage is at least twice as long as
its crops, which are drawn independently and may overlap.

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
from stillhouse.corpus.words import words_in


class Spans(NamedTuple):
    """Spans sorted by passage and place: rows int64 [K], and [first, last + 1) words, int64 [K, 2]."""

    rows_K: NDArray[np.int64]
    words_K2: NDArray[np.int64]


def draw_spans(
    words_P: NDArray[np.int32],
    possible_P: NDArray[np.bool_],
    layout: ArticleLayout,
    lengths: tuple[int, int],
    most: int,
    random: np.random.Generator,
) -> Spans:
    """Draws at most `most` spans per article, of `lengths` words (at least, at most), from passages in `possible_P`.

    Passage, length and place are uniform. A passage with fewer than twice the minimum length gives no span, and of two
    spans that begin at the same word, one is kept.
    """
    least, longest = lengths
    rows = layout.passages_P
    rows = rows[(possible_P & (words_P >= 2 * least))[rows]]
    sizes_A = np.bincount(layout.article_P[rows], minlength=layout.articles)
    article_K = np.repeat(np.flatnonzero(sizes_A), most)
    rows_K = rows[(np.cumsum(sizes_A) - sizes_A)[article_K] + random.integers(sizes_A[article_K])]
    length_K = random.integers(least, np.minimum(words_P[rows_K] // 2, longest) + 1)
    begin_K = random.integers(words_P[rows_K] - length_K + 1)
    # Of spans that begin at the same word, `unique` keeps the first one drawn.
    _, kept = np.unique(np.stack([rows_K, begin_K], axis=1), axis=0, return_index=True)
    return Spans(rows_K[kept], np.stack([begin_K, begin_K + length_K], axis=1)[kept])


def found_elsewhere(
    spans: Sequence[str], rows_K: NDArray[np.int64], least: int, texts: Iterable[str]
) -> NDArray[np.bool_]:
    """Whether a span also occurs in another passage than its own, bool [K]; `texts` are those of all passages.

    Spans and texts are normalised with `normalise`. Every span has at least `least` words.
    """
    words_K = [words_in(normalise(span)) for span in spans]
    least = min([least, *map(len, words_K)])
    by_opening = defaultdict(list)
    for number, words in enumerate(words_K):
        by_opening[tuple(words[:least])].append(number)
    found_K = np.zeros(len(spans), dtype=np.bool_)
    for row, text in enumerate(texts if spans else ()):
        said = words_in(normalise(text))
        for begin, opening in enumerate(zip(*(said[place:] for place in range(least)))):
            for number in by_opening.get(opening, ()):
                words = words_K[number]
                if row != rows_K[number] and said[begin : begin + len(words)] == words:
                    found_K[number] = True
    return found_K
