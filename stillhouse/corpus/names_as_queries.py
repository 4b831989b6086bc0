"""Titles and headings as queries, each with the one passage that answers it.

- The title of an article asks for the article's first passage, or, if a section has the title as its heading, for that
  section's first passage: the text before such a section is a notice or a table of contents.
- A heading asks for the first passage of its section.

"First" means the first passage of prose: a table or a block of code does not introduce a subject.

A name that several passages answer is not used as a query: the title of two articles, the heading of two sections
(`Overview`), a title that is a heading elsewhere. If a section has its article's title as its heading, only the title
becomes a query.

Shapes: P passages, A articles, R sections (runs of passages with one heading), N names, M pairs, F forms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.article_layout import ArticleLayout
from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.digest_numbers import DigestNumbers, digests_of
from stillhouse.corpus.query_sentences import MOST_WORDS
from stillhouse.corpus.taken_passages import TakenPassages
from stillhouse.corpus.words import count_words


class Names(NamedTuple):
    """Names that can be queries: the row with each name in its column, and the row that answers it, int64 [N].

    The column is `title` or `section`; both rows are from one article.
    """

    named_N: NDArray[np.int64]
    answers_N: NDArray[np.int64]


def names_as_queries(passages: TakenPassages, layout: ArticleLayout, prose_P: NDArray[np.bool_]) -> tuple[Names, Names]:
    """The titles and the headings that can be queries; `prose_P` marks the passages that can answer a query."""
    forms = DigestNumbers()
    first_A, first_R = (_first(layout, group_P, prose_P) for group_P in (layout.article_P, layout.section_P))
    title_A = _forms(passages, "title", first_A, forms)
    heading_R = _forms(passages, "section", first_R, forms)

    answer_A, article_R = first_A.copy(), layout.article_P[first_R]
    own_R = np.flatnonzero((heading_R >= 0) & (heading_R == title_A[article_R]))
    answer_A[article_R[own_R]] = first_R[own_R]

    pairs_M2 = np.stack([np.concatenate([title_A, heading_R]), np.concatenate([answer_A, first_R])], axis=1)
    pairs_M2 = np.unique(pairs_M2[pairs_M2[:, 0] >= 0], axis=0)
    # An empty name has number -1, which indexes the last place.
    once_F = np.append(np.bincount(pairs_M2[:, 0], minlength=len(forms)) == 1, False)
    title_F = np.zeros_like(once_F)
    title_F[title_A] = True
    titles_A = once_F[title_A] & prose_P[answer_A]
    headings_R = once_F[heading_R] & ~title_F[heading_R] & prose_P[first_R]
    return Names(first_A[titles_A], answer_A[titles_A]), Names(first_R[headings_R], first_R[headings_R])


def _first(layout: ArticleLayout, group_P: NDArray[np.int64], prose_P: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The row of the first prose passage of each group, or of its first passage if it has no prose; int64."""
    rows = layout.passages_P
    order = np.lexsort((~prose_P[rows], group_P[rows]))
    return rows[order[np.unique(group_P[rows][order], return_index=True)[1]]]


def _forms(passages: TakenPassages, column: str, rows_N: NDArray[np.int64], forms: DigestNumbers) -> NDArray[np.int64]:
    """The number of the normalised name of each row, int64 [N]; -1 for a name that is too long or has no letter or
    digit.
    """
    form_N = np.full(len(rows_N), -1, dtype=np.int64)
    order = np.argsort(rows_N)
    place, begin = 0, 0
    for block in passages.blocks(column):
        end = int(np.searchsorted(rows_N, begin + len(block), sorter=order))
        chosen = order[place:end]
        names = [normalise(name) for name in block.column(0).take(rows_N[chosen] - begin).to_pylist()]
        kept = [any(map(str.isalnum, name)) and count_words(name) <= MOST_WORDS for name in names]
        form_N[chosen[kept]] = forms.add(digests_of([name for name, keep in zip(names, kept) if keep]))
        place, begin = end, begin + len(block)
    return form_N
