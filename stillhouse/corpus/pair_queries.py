"""Queries generated from the corpus itself, for a corpus without labels: the pair tasks of Chang et al. §3.

A pair query is a sentence with one relevant passage:

- `ict` (inverse cloze): a sentence of a passage → the neighbouring passage in the same section;
- `bfs` (body first selection): a sentence of an article's first section → another passage of that article;
- `wlp` (link prediction): a sentence of an article's first section → a passage of an article that links to it.

**A sentence is never in its relevant passage.** Chang et al. remove the sentence of `ict` from the passage. Here the
passages of the corpus are trained on and searched, and a retriever that finds the sentence's own passage only shows
that it can match strings. So `ict` asks for the neighbouring passage: the task is about local context, in Chang et al.
too. The column `taken_from` names the passage that a sentence was taken from. `evaluate` leaves it out of that query's
ranking, so that finding it is not penalised. It must not be a negative in training either, nor must the other passages
of the articles of `bfs` and `wlp`, from which the relevant one was drawn at random (`not_negatives`).

If every article has one passage, there is no neighbouring passage. Then the relevant passage of `ict` is the sentence's
own, which is called *verbatim* everywhere, and its metrics mainly show string matching.

Train, dev and test share no article: an article, its sentences and the relevant passages of its queries are in one
split. A link between articles of different splits makes no query. All passages are searched in every split. One or two
articles, such as a manual, are divided into runs of passages, which then count as articles, and only `ict` is possible:
all passages of an article of `bfs` may be right.

Shapes: S sentences, P passages, A articles, L links, K drawn queries.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.articles import ArticleLayout, Articles, lay_out, offsets_of
from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.schemas import SPLITS
from stillhouse.corpus.sentences import query_sentences
from stillhouse.corpus.settings import TASKS, IngestSettings
from stillhouse.corpus.taken_passages import TakenPassages

RUN, RUN_LEAST = 10, 2
"""A run has about so many passages, and at least so many; fewer than a hundred are divided into about ten runs."""
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


class PairQuery(NamedTuple):
    """A generated query. `taken_from` and `positive` are passage ids; `task` is one of `TASKS`."""

    id: str
    text: str
    split: str
    task: str
    taken_from: str
    positive: str


@dataclass(frozen=True)
class PairQueries:
    """The queries that were made. `articles` counts the articles of each split; `verbatim` is explained above."""

    queries: list[PairQuery]
    tasks: tuple[str, ...]
    articles: Mapping[str, int]
    verbatim: bool

    def counts(self) -> dict[str, dict[str, int]]:
        """{split: {task: queries}}."""
        counted = Counter((query.split, query.task) for query in self.queries)
        return {split: {task: counted[split, task] for task in self.tasks} for split in SPLITS}


@doing("making queries from the corpus")
def make_pair_queries(
    passages: TakenPassages,
    links: Iterable[tuple[str, str]],
    settings: IngestSettings,
    taken: Iterable[str] = (),
    not_prose: Iterable[str] = (),
) -> PairQueries:
    """Makes the pair queries of a clean corpus. The same corpus and settings give the same queries.

    `taken` are the texts of labelled queries, which no pair query repeats. `not_prose` are the ids of passages, such as
    tables, that no query is taken from; they may still be relevant. Raises `InputError` for a task that the corpus does
    not support, for too few articles to hold any out, and if no train query results.
    """
    layout, divided = divisible(passages, links, settings)
    tasks = _supported(layout, divided, tuple(task for task in TASKS if task in (settings.pair_tasks or ())))
    split_A = split_articles(layout.articles, settings)
    forms = {normalise(text) for text in taken}
    prose_P = np.ones(len(passages), dtype=np.bool_)
    prose_P[passages.rows_of(list(not_prose))] = False
    verbatim = "ict" in tasks and bool((layout.neighbour_P < 0).all())
    drawn = draw_queries(passages, layout, split_A, prose_P, tasks, settings, taken=forms, verbatim=verbatim)
    split_K = split_A[layout.article_P[drawn.taken_from_K]]
    kept_K = sampled(split_K, settings)
    queries = _written(passages, Drawn(*(part[kept_K] for part in drawn)), split_K[kept_K])
    for task in tasks if settings.pair_tasks is not None else ():
        if not (drawn.task_K == TASKS.index(task)).any():
            raise InputError(
                f"pair_tasks: the corpus gives no {task} query; leave {task} out or lower pair_sentence_words"
            )
    if not any(query.split == "train" for query in queries):
        raise InputError(
            f"no train query could be made by {'+'.join(tasks)}: no passage of a train article has suitable words that "
            "appear nowhere else; lower pair_sentence_words, or give `stillhouse ingest` more text"
        )
    articles = {split: int((split_A == number).sum()) for number, split in enumerate(SPLITS)}
    return PairQueries(queries, tasks, articles, verbatim)


def divisible(
    passages: TakenPassages, links: Iterable[tuple[str, str]], settings: IngestSettings
) -> tuple[ArticleLayout, bool]:
    """The articles of a corpus, or instead of one or two, of which none could be held out, runs of their passages.

    Also returns whether these are runs.
    """
    own, order = passages.own_articles(), (passages.column("section"), passages.column("position"))
    layout = lay_out(own, *order, links)
    too_few = layout.articles <= sum(_held_out(layout.articles, settings))
    if layout.articles > 2 or not too_few or len(passages) < 3 * RUN_LEAST:
        return layout, False
    sizes_P = np.diff(layout.offsets)[layout.article_P]
    runs_P = np.maximum(1, sizes_P // max(RUN_LEAST, min(RUN, len(passages) // RUN)))
    place_P = layout.place_P - layout.offsets[layout.article_P]
    run_P = layout.article_P * len(passages) + place_P * runs_P // sizes_P
    return lay_out(pa.array(run_P.astype(str)), *order, ()), True


def _held_out(articles: int, settings: IngestSettings) -> list[int]:
    """How many articles are for dev, and for test."""
    shares = (settings.heldout_dev_articles, settings.heldout_test_articles)
    return [max(round(share * articles), 1) if share else 0 for share in shares]


def split_articles(articles: int, settings: IngestSettings) -> NDArray[np.int8]:
    """The split of each article as its index in `SPLITS`, int8 [A]; a fraction above 0 takes at least one article.

    Raises `InputError` if no article would be left to train on.
    """
    sizes = _held_out(articles, settings)
    if sum(sizes) >= articles:
        number = "1 article is" if articles == 1 else f"{articles} articles are"
        raise InputError(
            f"{number} too few to hold out {sizes[0]} for dev and {sizes[1]} for test; give `stillhouse ingest` "
            "more articles, lower heldout_dev_articles and heldout_test_articles, or make no pair queries (`queries: "
            "source`)"
        )
    split_A = np.zeros(articles, dtype=np.int8)
    order_A = np.random.default_rng([settings.seed, len(SPLITS), 0]).permutation(articles)
    split_A[order_A[: sizes[0]]] = SPLITS.index("dev")
    split_A[order_A[sizes[0] : sum(sizes)]] = SPLITS.index("test")
    return split_A


def _supported(layout: ArticleLayout, divided: bool, asked: tuple[str, ...]) -> tuple[str, ...]:
    single = (np.diff(layout.offsets) <= 1).all()
    lacks = {
        "bfs": "only one or two articles" if divided else "no article of several passages" if single else "",
        "wlp": "" if len(layout.links_L2) else "no links between its articles",
    }
    for task in asked:
        if lacks.get(task):
            raise InputError(
                f"pair_tasks: {task} is impossible in this corpus, which has {lacks[task]}; leave {task} out, or give "
                "`stillhouse ingest` articles (format article-tree or article-jsonl)"
            )
    return asked or tuple(task for task in TASKS if not lacks.get(task))


def _written(passages: TakenPassages, drawn: Drawn, split_K: NDArray[np.int8]) -> list[PairQuery]:
    """The queries with their texts, with white space as single spaces."""
    ids = passages.column("passage_id")
    own_K, other_K = (ids.take(pa.array(rows)).to_pylist() for rows in (drawn.taken_from_K, drawn.positives_K))
    texts_K = passages.texts_of(drawn.taken_from_K)
    return [
        PairQuery(
            f"{TASKS[task]}:{own}:{number}", " ".join(text[begin:end].split()), SPLITS[split], TASKS[task], own, other
        )
        for task, text, (begin, end), number, split, own, other in zip(
            drawn.task_K.tolist(),
            texts_K,
            drawn.places_K2.tolist(),
            drawn.numbers_K.tolist(),
            split_K.tolist(),
            own_K,
            other_K,
        )
    ]


def sampled(split_K: NDArray[np.int8], settings: IngestSettings) -> NDArray[np.bool_]:
    """Marks a seeded sample of at most `max_pair_queries` queries, and at most `max_queries` of each split."""
    kept = np.ones(len(split_K), dtype=np.bool_)
    limits = [(0, settings.max_pair_queries, np.ones_like(kept))]
    for split, limit in settings.max_queries.items():
        number = SPLITS.index(split)
        limits.append((1 + number, limit, split_K == number))
    for stream, limit, own_K in limits:
        own = np.flatnonzero(own_K & kept)
        if limit and len(own) > limit:
            order = np.random.default_rng([settings.seed, len(SPLITS), 10 + stream]).permutation(own)
            kept[order[limit:]] = False
    return kept
