"""Articles with their passages and links as arrays, and the draws of BFS and WLP from them (Chang et al. §3).

Pair queries of a corpus (`pair_drawing`) and pre-training on pairs (`pretraining/pairs`) both draw here.

Shape suffixes: B pairs, N all passages, A articles, M passages of articles, E links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def offsets_of(numbers: NDArray[np.integer], count: int) -> NDArray[np.int64]:
    """Where each of `count` groups begins in a list sorted by group, int64 [count + 1]."""
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(numbers, minlength=count), out=offsets[1:])
    return offsets


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

    def draw_bfs(
        self, article_B: NDArray[np.integer], source_B: NDArray[np.integer], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Body first selection: another passage of each source's article, int64 [B]."""
        drawn_B = rng.integers(0, self.sizes()[article_B] - 1)
        place_B = drawn_B + (drawn_B >= self.place[source_B])
        return self.passages[self.offsets[article_B] + place_B]

    def draw_wlp(self, article_B: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.int64]:
        """Link prediction: for each article, a passage of an article that links to it, int64 [B]."""
        linking_B = self.linking[self.link_offsets[article_B] + rng.integers(0, self.in_degrees()[article_B])]
        return self.passages[self.offsets[linking_B] + rng.integers(0, self.sizes()[linking_B])]
