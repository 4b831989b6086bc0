"""Articles as arrays: passages, neighbours, first sections and links, and the draws of BFS and WLP (Chang et al. §3).

Pair queries of a corpus (`pair_queries`) and pre-training on pairs (`pretraining/pairs`) both draw here.

Shapes: B pairs, N or P all passages, A articles, M passages of articles, E or L links. Rows are rows of the given
passages.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
    ) -> Self:
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


@dataclass(frozen=True)
class ArticleLayout:
    """`passages_P` (int64 rows) lists the passages article by article, by position. The passages of article a are
    `passages_P[offsets[a]:offsets[a + 1]]`, and `place_P` is the place of each row in that list. Articles are numbered
    in the order of their sorted ids. `neighbour_P` is the row of the neighbouring passage, or -1 in an article of one
    passage. A section is a run of passages with the same heading; `first_section_P` marks the passages of the section
    that opens an article.
    `links_L2` (int64) holds the article numbers (source, target) of every link, sorted.
    """

    article_P: NDArray[np.int64]
    passages_P: NDArray[np.int64]
    place_P: NDArray[np.int64]
    offsets: NDArray[np.int64]
    neighbour_P: NDArray[np.int64]
    first_section_P: NDArray[np.bool_]
    links_L2: NDArray[np.int64]

    @property
    def articles(self) -> int:
        return len(self.offsets) - 1


def lay_out(
    article_ids: pa.ChunkedArray,
    sections: pa.ChunkedArray,
    positions: pa.ChunkedArray,
    links: Iterable[tuple[str, str]],
) -> ArticleLayout:
    """Lays out passages, given as columns, and the links (source article, target article) among their articles.

    The neighbour of a passage is the next passage of its section, else the previous one of its section, else the next
    one of the article, else the previous one.
    """
    ids = pc.unique(article_ids).sort()
    article_P = pc.index_in(article_ids, value_set=ids).to_numpy().astype(np.int64)
    heading_P = pc.index_in(sections, value_set=pc.unique(sections)).to_numpy()
    position_P = positions.to_numpy()
    order_P = np.lexsort((position_P, article_P))
    count = len(order_P)
    place_P = np.empty(count, dtype=np.int64)
    place_P[order_P] = np.arange(count)
    offsets = offsets_of(article_P, len(ids))

    # From here on, arrays run over places in `order_P`.
    article, heading = article_P[order_P], heading_P[order_P]
    same_article = article[1:] == article[:-1]
    same_section = same_article & (heading[1:] == heading[:-1])
    section = np.concatenate([[0], np.cumsum(~same_section)])
    no = np.zeros(1, dtype=np.bool_)
    after, before = np.concatenate([same_section, no]), np.concatenate([no, same_section])
    after_in_article, before_in_article = np.concatenate([same_article, no]), np.concatenate([no, same_article])
    step = np.select([after, before, after_in_article, before_in_article], [1, -1, 1, -1], default=0)
    places = np.arange(count)
    neighbour = np.where(step == 0, -1, order_P[(places + step) % max(count, 1)])
    first = section[:count] == section[offsets[article]]

    ends = [pa.array(names, pa.string()) for names in zip(*links)] or [pa.array([], pa.string())] * 2
    links_L2 = np.stack([pc.index_in(end, value_set=ids).to_numpy(zero_copy_only=False) for end in ends], axis=1)
    links_L2 = links_L2[np.lexsort(links_L2.T[::-1])].astype(np.int64)
    return ArticleLayout(
        article_P=article_P,
        passages_P=order_P,
        place_P=place_P,
        offsets=offsets,
        neighbour_P=neighbour[place_P],
        first_section_P=first[place_P],
        links_L2=links_L2,
    )
