"""Draws the pair queries of each task: the words of a passage that ask, and the passage that answers.

`pair_queries` describes the tasks and makes the queries.

Shapes: S sentences, P passages, A articles, L links, K drawn queries.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.articles import ArticleLayout, Articles, offsets_of
from stillhouse.corpus.schemas import SPLITS
from stillhouse.corpus.sentences import query_sentences
from stillhouse.corpus.settings import IngestSettings
from stillhouse.corpus.taken_passages import TakenPassages

TASKS = ("ict", "bfs", "wlp")
_DRAWN = ("wlp", "bfs", "ict")
"""The order in which tasks take their sentences, each sentence once: the task with the fewest candidates goes first."""


class Drawn(NamedTuple):
    """Queries before their texts are read: int64 [K], or [K, 2].

    `task_K` are indices into `TASKS`. `taken_from_K` are the passages that hold the queries, at the characters
    [begin, end) of `places_K2`. `positives_K` are the relevant passages. `numbers_K` are the numbers of the sentences.
    """

    task_K: NDArray[np.int64]
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
    settings: IngestSettings,
    *,
    taken: Set[str],
    verbatim: bool,
) -> Drawn:
    """Draws the queries of each task, in the order of `tasks`, which share those of an article evenly.

    Every task has its own stream of random numbers. `prose_P` marks the passages that queries may be taken from.
    `verbatim` makes the sentence's own passage the relevant one in `ict`. `taken` are normalised texts that no
    query may repeat.
    """
    sentences = query_sentences(passages.texts(), settings.pair_sentence_words, settings.pair_language, taken)
    most = max(settings.pair_queries_per_article // len(tasks), 1)
    free_S = ~sentences.taken_S & prose_P[sentences.rows_S]
    drawn: dict[str, Drawn] = {}
    for task in (task for task in _DRAWN if task in tasks):
        random = np.random.default_rng([settings.seed, len(SPLITS), 1 + TASKS.index(task)])
        positives = _Positives(layout, split_A, task, verbatim)
        possible_S = free_S & positives.possible_P[sentences.rows_S]
        chosen_K = _draw(possible_S, layout.article_P[sentences.rows_S], most, random)
        free_S[chosen_K] = False
        rows_K = sentences.rows_S[chosen_K]
        task_K = np.full(len(rows_K), TASKS.index(task))
        parts = rows_K, positives.draw(rows_K, random), sentences.numbers_S[chosen_K], sentences.spans_S2[chosen_K]
        drawn[task] = Drawn(task_K, *(part.astype(np.int64) for part in parts))
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
