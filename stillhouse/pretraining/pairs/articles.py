"""What pairs are drawn from, as arrays: sentences, the passages of each article, and the articles that link to it.

Shape suffixes: N all passages, S sentences, A articles, M passages of articles, E links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillhouse.errors import InputError
from stillhouse.pretraining.pairs.structure import PassageStructure, offsets_of
from stillhouse.pretraining.tokens import TokenCache


@dataclass(frozen=True)
class Sentences:
    """Sentences with an ordinary token, without titles: tokens `begins[s]` to `ends[s]` (int64 [S]) of the cache.

    Passage i has the sentences `offsets[i]` to `offsets[i + 1]` (int64 [N + 1]).
    """

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def counts(self) -> NDArray[np.int64]:
        """The number of sentences per passage, int64 [N]."""
        return np.diff(self.offsets)


def require_structure(cache: TokenCache) -> PassageStructure:
    """The cache's structure. Raises `InputError` if the cache was written without it."""
    if cache.structure is None:
        raise InputError("the tokens have no sentences and articles; run `stillhouse tokenize` again")
    return cache.structure


def ordinary_sentences(cache: TokenCache) -> Sentences:
    """The sentences of every passage's text that contain a non-special token ([UNK] is special)."""
    structure = require_structure(cache)
    begins = np.flatnonzero(structure.sentence_starts)
    if not len(begins):
        return Sentences(begins, begins, np.zeros(len(cache) + 1, dtype=np.int64))
    ends = np.append(begins[1:], len(cache.ids))
    ordinary = np.logical_or.reduceat(~np.isin(cache.ids, cache.specials.all), begins)
    passage = np.searchsorted(cache.offsets, begins, side="right") - 1
    in_text = begins >= cache.offsets[passage] + structure.title_lengths[passage]
    kept = ordinary & in_text
    return Sentences(begins[kept], ends[kept], offsets_of(passage[kept], len(cache)))


@dataclass(frozen=True)
class Articles:
    """`passages` int64 [M]: the rows of article a are `passages[offsets[a]:offsets[a + 1]]` (`offsets` int64 [A + 1]).

    `place` int64 [N]: a row's position within its article (-1 for a row without one). `linking` int64 [E]: the articles
    that link to article a are `linking[link_offsets[a]:link_offsets[a + 1]]`.
    """

    passages: NDArray[np.int64]
    offsets: NDArray[np.int64]
    place: NDArray[np.int64]
    linking: NDArray[np.int64]
    link_offsets: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        article_N: NDArray[np.int32],
        links_M2: NDArray[np.int32],
        usable_N: NDArray[np.bool_],
        heldout_N: NDArray[np.bool_],
    ) -> Articles:
        """Keep usable passages, and links between two articles with passages that are both held out or both not."""
        count = int(article_N.max(initial=-1)) + 1
        rows = np.flatnonzero(usable_N & (article_N >= 0))
        passages = rows[np.argsort(article_N[rows], kind="stable")]
        offsets = offsets_of(article_N[passages], count)
        place_N = np.full(len(article_N), -1, dtype=np.int64)
        place_N[passages] = np.arange(len(passages)) - offsets[article_N[passages]]
        heldout_A = np.zeros(count, dtype=bool)
        heldout_A[article_N[rows]] = heldout_N[rows]
        source, target = links_M2[:, 0], links_M2[:, 1]
        sizes_A = np.diff(offsets)
        kept = (sizes_A[source] > 0) & (sizes_A[target] > 0) & (heldout_A[source] == heldout_A[target])
        order = np.lexsort((source[kept], target[kept]))
        return cls(
            passages, offsets, place_N, source[kept][order].astype(np.int64), offsets_of(target[kept][order], count)
        )

    def sizes(self) -> NDArray[np.int64]:
        """The number of usable passages of each article, int64 [A]."""
        return np.diff(self.offsets)

    def in_degrees(self) -> NDArray[np.int64]:
        """The number of articles that link to each article, int64 [A]."""
        return np.diff(self.link_offsets)
