"""The layout of articles as arrays: neighbours of passages, first sections and links.

Shapes: P passages, A articles, L links. Rows are rows of the given passages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillhouse.corpus.linked_articles import offsets_of


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
