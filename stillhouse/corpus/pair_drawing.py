"""Draws the pair queries of each task: the words of a passage that ask, and the passage that answers.

`pair_queries` describes the tasks and makes the queries.

Shapes: S sentences, P passages, A articles, L links, K drawn queries.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.article_layout import ArticleLayout
from stillhouse.corpus.linked_articles import Articles, offsets_of
from stillhouse.corpus.names_as_queries import names_as_queries
from stillhouse.corpus.query_sentences import query_sentences
from stillhouse.corpus.query_spans import draw_spans
from stillhouse.corpus.schemas import SPLITS
from stillhouse.corpus.taken_passages import TakenPassages
from stillhouse.corpus.words import count_words

OF_SENTENCES = ("ict", "bfs", "wlp")
TITLE, HEADING, SPAN = "title", "heading", "span"
TASKS = (*OF_SENTENCES, TITLE, HEADING, SPAN)
COLUMNS = {TITLE: "title", HEADING: "section"}
"""The columns that hold the queries of tasks, if not `text`."""
_DRAWN = ("wlp", "bfs", "ict", TITLE, HEADING, SPAN)
"""The order in which tasks take their sentences, each sentence once: the task with the fewest candidates goes first."""


class Drawn(NamedTuple):
    """Queries before their texts are read: int64 [K], or [K, 2].

    `task_K` are indices into `TASKS`. `asking_K` are the passages that hold the queries, at [begin, end) of
    `places_K2`: characters of a sentence, words of a span; a title or heading is the whole column. `positives_K` are
    the relevant passages. `taken_from_K` and `numbers_K` make the id.
    """

    task_K: NDArray[np.int64]
    asking_K: NDArray[np.int64]
    taken_from_K: NDArray[np.int64]
    positives_K: NDArray[np.int64]
    numbers_K: NDArray[np.int64]
    places_K2: NDArray[np.int64]

    def among(self, kept_K: NDArray[np.bool_]) -> Drawn:
        """The queries that a mask selects."""
        return Drawn(*(part[kept_K] for part in self))


def draw_queries(
    passages: TakenPassages,
    layout: ArticleLayout,
    split_A: NDArray[np.int8],
    prose_P: NDArray[np.bool_],
    tasks: tuple[str, ...],
    *,
    most: int,
    min_words: int,
    span_words: tuple[int, int],
    language: str,
    taken: Set[str],
    own_passage: bool,
    seed: int,
) -> Drawn:
    """Draws at most `most` queries per article and task, in the order of `tasks`.

    Every task has its own stream of random numbers. `prose_P` marks the passages that queries may be taken from.
    `own_passage` makes the sentence's own passage the relevant one in `ict`. `taken` are normalised texts that no
    query may repeat.
    """
    if set(tasks) & set(OF_SENTENCES):
        sentences = query_sentences(passages.texts(), min_words, language, taken)
        free_S = ~sentences.taken_S & prose_P[sentences.rows_S]
    if set(tasks) & COLUMNS.keys():
        names = dict(zip((TITLE, HEADING), names_as_queries(passages, layout, prose_P)))
    drawn: dict[str, Drawn] = {}
    for task in (task for task in _DRAWN if task in tasks):
        random = np.random.default_rng([seed, len(SPLITS), 1 + TASKS.index(task)])
        parts: tuple[NDArray[np.integer], ...]
        if task in OF_SENTENCES:
            positives = _Positives(layout, split_A, task, own_passage)
            possible_S = free_S & positives.possible_P[sentences.rows_S]
            chosen_K = _draw(possible_S, layout.article_P[sentences.rows_S], most, random)
            free_S[chosen_K] = False
            rows_K = sentences.rows_S[chosen_K]
            parts = rows_K, rows_K, positives.draw(rows_K, random), sentences.numbers_S[chosen_K]
            places_K2 = sentences.spans_S2[chosen_K].astype(np.int64)
        elif task == SPAN:
            words_P = np.fromiter(map(count_words, passages.texts()), np.int32)
            spans = draw_spans(words_P, prose_P, layout, span_words, most, random)
            parts = spans.rows_K, spans.rows_K, spans.rows_K, spans.words_K2[:, 0]
            places_K2 = spans.words_K2
        else:
            found = names[task]
            possible_N = np.ones(len(found.named_N), dtype=np.bool_)
            chosen_K = _draw(possible_N, layout.article_P[found.named_N], most, random)
            answers_K = found.answers_N[chosen_K]
            parts = found.named_N[chosen_K], answers_K, answers_K, np.zeros_like(chosen_K)
            places_K2 = np.zeros((len(chosen_K), 2), dtype=np.int64)
        task_K = np.full(len(places_K2), TASKS.index(task))
        drawn[task] = Drawn(task_K, *(part.astype(np.int64) for part in (*parts, places_K2)))
    return Drawn(*(np.concatenate(parts) for parts in zip(*(drawn[task] for task in tasks))))


class _Positives:
    """The relevant passages that a task allows. `possible_P` marks the passages whose sentences have any."""

    def __init__(self, layout: ArticleLayout, split_A: NDArray[np.int8], task: str, verbatim: bool) -> None:
        self._layout, self._task, self._verbatim = layout, task, verbatim
        if task == "ict":
            self.possible_P = (layout.neighbour_P >= 0) | verbatim
            return
        self.possible_P = layout.first_section_P.copy()
        source_L, target_L = layout.links_L2[(split_A[layout.links_L2[:, 0]] == split_A[layout.links_L2[:, 1]])].T
        self._articles = Articles(
            layout.passages_P,
            layout.offsets,
            layout.place_P - layout.offsets[layout.article_P],
            source_L[np.argsort(target_L, kind="stable")],
            offsets_of(target_L, layout.articles),
        )
        if task == "bfs":
            self.possible_P &= self._articles.sizes()[layout.article_P] > 1
        else:
            self.possible_P &= self._articles.in_degrees()[layout.article_P] > 0

    def draw(self, rows_K: NDArray[np.int32], random: np.random.Generator) -> NDArray[np.int64]:
        """Draws one relevant passage for a sentence of each of `rows_K`, int64 rows."""
        if self._task == "ict":
            return rows_K.astype(np.int64) if self._verbatim else self._layout.neighbour_P[rows_K]
        articles_K = self._layout.article_P[rows_K]
        if self._task == "wlp":
            return self._articles.draw_wlp(articles_K, random)
        return self._articles.draw_bfs(articles_K, rows_K, random)


def _draw(
    possible_N: NDArray[np.bool_], article_N: NDArray[np.int64], most: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Draws at most `most` of the possible candidates per article, without repeats, ascending."""
    candidates = np.flatnonzero(possible_N)
    article = article_N[candidates]
    order = np.lexsort((random.random(len(candidates)), article))
    article = article[order]
    rank = np.arange(len(article)) - np.searchsorted(article, article)
    return np.sort(candidates[order[rank < most]])
