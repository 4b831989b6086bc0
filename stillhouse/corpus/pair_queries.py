"""Queries made from the corpus itself, for a corpus without labelled ones: the pair tasks of 004 §3.

A pair query is a sentence with one relevant passage:

- `ict` (inverse cloze): a sentence of a passage → the passage beside it in the same section;
- `bfs` (body first selection): a sentence of an article's first section → another passage of that article;
- `wlp` (link prediction): a sentence of an article's first section → a passage of an article that links to it.

**The sentence never stands in its relevant passage.** 004 takes the sentence of `ict` out of the passage. Here the
passages that are trained on and searched are those of the corpus, and a retriever that finds the sentence's own
passage shows that it can match strings. So `ict` asks for the passage beside it: the local context is what the task is
about, in 004 too. The passage that a sentence was taken from is kept in the column `taken_from`: `evaluate` leaves it
out of the ranking of that query, or a system would be punished for finding it. It must be no negative in a training
either, nor must the other passages of the articles of `bfs` and `wlp`, among which the relevant one was drawn by lot
(`not_negatives`).

Where every article has one passage there is no passage beside it: then the relevant passage of `ict` is the sentence's
own, which is called *verbatim* everywhere, and its figures tell of string matching above all. Pairs that are mixed into
labelled train queries (`mixed_pairs`) are verbatim too: nothing is measured on them, and they teach the corpus's words.

Train, dev and test share no article: an article, its sentences and the relevant passages of its queries are in one
split. A link between articles of two splits makes no query. All passages are searched in every split.

Shapes: S sentences, P passages, A articles, L links, K chosen sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from stillhouse.corpus.article_layout import ArticleLayout, lay_out
from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.query_sentences import QuerySentences, query_sentences
from stillhouse.corpus.schemas import SPLITS
from stillhouse.corpus.store import Corpus
from stillhouse.corpus.taken_passages import TakenPassages
from stillhouse.errors import InputError
from stillhouse.monitoring.activity import doing

TASKS = ("ict", "bfs", "wlp")
AUTO = "auto"
_DRAWN = ("wlp", "bfs", "ict")
"""The order in which tasks take their sentences, each sentence once: the one with the fewest to choose from first."""


class PairQuery(NamedTuple):
    """A made query. `taken_from` and `positive` are passage ids; `task` is one of `TASKS`."""

    id: str
    text: str
    split: str
    task: str
    taken_from: str
    positive: str


@dataclass(frozen=True, kw_only=True)
class PairChoices:
    """What to make. `tasks` is `auto` (all that the corpus supports) or names with + between them.

    `per_article` is divided evenly among the tasks, at least one each. The fractions are of the articles. `most` limits
    the queries of all splits together, `max_queries` those of each (0 = all). With `own_passage` the relevant passage
    of `ict` is the sentence's own in every corpus.
    """

    tasks: str = AUTO
    per_article: int = 6
    dev_fraction: float = 0.1
    test_fraction: float = 0.1
    min_words: int = 6
    language: str = "en"
    most: int = 0
    max_queries: Mapping[str, int]
    seed: int
    own_passage: bool = False


@dataclass(frozen=True)
class PairQueries:
    """What was made. `articles` counts the articles of each split; `verbatim` is explained above."""

    queries: list[PairQuery]
    tasks: tuple[str, ...]
    articles: Mapping[str, int]
    verbatim: bool

    def counts(self) -> dict[str, dict[str, int]]:
        """{split: {task: queries}}."""
        counted = Counter((query.split, query.task) for query in self.queries)
        return {split: {task: counted[split, task] for task in self.tasks} for split in SPLITS}


def parse_tasks(names: str) -> tuple[str, ...]:
    """The tasks of a setting such as `ict+bfs`, in the order of `TASKS`; () for `auto`. Raises `InputError`."""
    if names == AUTO:
        return ()
    asked = names.split("+")
    for name in asked:
        if name not in TASKS:
            raise InputError(f"pair_tasks: {name!r} is no pair task; write {AUTO}, or any of {'+'.join(TASKS)}")
    return tuple(task for task in TASKS if task in asked)


@doing("making queries from the corpus")
def make_pair_queries(
    passages: TakenPassages,
    links: Iterable[tuple[str, str]],
    choices: PairChoices,
    taken: Iterable[str] = (),
    not_prose: Iterable[str] = (),
) -> PairQueries:
    """Makes the pair queries of a clean corpus. The same corpus, choices and seed give the same queries.

    `taken` are the texts of labelled queries: no pair query repeats one. `not_prose` are the ids of passages, tables
    say, that no query is taken from; they may be relevant to one. Raises `InputError` for a task that the corpus
    does not support, for too few articles to hold any out, and when no train query comes out.
    """
    layout = lay_out(passages.column("article_id"), passages.column("section"), passages.column("position"), links)
    tasks = _supported(layout, parse_tasks(choices.tasks))
    split_A = split_articles(layout.articles, choices.dev_fraction, choices.test_fraction, choices.seed)
    forms = {normalise(text) for text in taken}
    sentences = query_sentences(passages.texts(), choices.min_words, choices.language, forms)
    verbatim = choices.own_passage or bool((layout.neighbour_P < 0).all())
    most = max(choices.per_article // len(tasks), 1)
    prose_P = np.ones(len(passages), dtype=np.bool_)
    prose_P[passages.rows_of(list(not_prose))] = False
    free_S = ~sentences.taken_S & prose_P[sentences.rows_S]
    drawn: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
    for task in (task for task in _DRAWN if task in tasks):
        random = np.random.default_rng([choices.seed, len(SPLITS), 1 + TASKS.index(task)])
        positives = _Positives(layout, split_A, task, verbatim)
        chosen_K = _draw(free_S & positives.possible_P[sentences.rows_S], sentences, layout, most, random)
        free_S[chosen_K] = False
        drawn[task] = chosen_K, positives.draw(sentences.rows_S[chosen_K], random)
        if choices.tasks != AUTO and not len(chosen_K):
            raise InputError(
                f"pair_tasks: the corpus gives no {task} query; leave {task} out, or lower pair_sentence_words"
            )
    chosen_K, positives_K = (np.concatenate([drawn[task][part] for task in tasks]) for part in (0, 1))
    task_K = np.repeat(np.arange(len(tasks)), [len(drawn[task][0]) for task in tasks])
    split_K = split_A[layout.article_P[sentences.rows_S[chosen_K]]]
    kept = sampled(split_K, choices)
    if not (split_K[kept] == SPLITS.index("train")).any():
        raise InputError(
            f"no train query could be made: no passage has a sentence of {choices.min_words} words or more that stands "
            "nowhere else; lower pair_sentence_words, or give `stillhouse ingest` more text"
        )
    queries = _written(
        passages,
        sentences,
        chosen_K[kept],
        positives_K[kept],
        [tasks[task] for task in task_K[kept].tolist()],
        [SPLITS[split] for split in split_K[kept].tolist()],
    )
    articles = {split: int((split_A == number).sum()) for number, split in enumerate(SPLITS)}
    return PairQueries(queries, tasks, articles, verbatim)


def split_articles(articles: int, dev_fraction: float, test_fraction: float, seed: int) -> NDArray[np.int8]:
    """The split of each article as its number in `SPLITS`, int8 [A]; a fraction above 0 takes at least one.

    Raises `InputError` when none would be left to train on.
    """
    sizes = [max(round(part * articles), 1) if part else 0 for part in (dev_fraction, test_fraction)]
    if sum(sizes) >= articles:
        raise InputError(
            f"{articles} articles are too few to hold out {sizes[0]} for dev and {sizes[1]} for test; give "
            "`stillhouse ingest` more articles, lower heldout_dev_articles and heldout_test_articles, or make no pair "
            "queries (`queries: source`)"
        )
    split_A = np.zeros(articles, dtype=np.int8)
    order_A = np.random.default_rng([seed, len(SPLITS), 0]).permutation(articles)
    split_A[order_A[: sizes[0]]] = SPLITS.index("dev")
    split_A[order_A[sizes[0] : sum(sizes)]] = SPLITS.index("test")
    return split_A


def not_negatives(corpus: Corpus) -> pd.DataFrame:
    """`query_id` and `row` (int32): the passages that a pair query has as neither relevant nor wrong.

    Those are the passage that its sentence was taken from and, for `bfs` and `wlp`, all passages of its own article
    and of its relevant passage's: any of them could have been drawn as the relevant one.
    """
    queries = corpus.queries[corpus.queries["taken_from"] != ""]
    own = pd.DataFrame({"query_id": queries["query_id"], "row": corpus.rows_of(queries["taken_from"])})
    wide = queries["query_id"][queries["origin"].isin(["bfs", "wlp"])]
    judged = corpus.qrels[corpus.qrels["query_id"].isin(wide)]
    ends = pd.concat(
        [
            own[own["query_id"].isin(wide)],
            pd.DataFrame({"query_id": judged["query_id"], "row": corpus.rows_of(judged["passage_id"])}),
        ]
    )
    article = corpus.passages_at(ends["row"].to_numpy(), "article_id")["article_id"]
    ends = ends.assign(article=article.to_numpy())[["query_id", "article"]].drop_duplicates()
    related = ends.merge(_rows_of_articles(corpus, ends["article"]), on="article")[["query_id", "row"]]
    return pd.concat([own, related]).drop_duplicates().astype({"row": np.int32}).reset_index(drop=True)


def _rows_of_articles(corpus: Corpus, articles: pd.Series) -> pd.DataFrame:
    """`article` and `row` (int32) of every passage of some articles, whose ids alone are held."""
    wanted, found, first = set(articles), [], 0
    for block in corpus.passage_blocks("article_id"):
        article = block["article_id"]
        rows = pd.DataFrame({"article": article, "row": np.arange(first, first + len(block), dtype=np.int32)})
        found.append(rows[article.isin(wanted)])
        first += len(block)
    return pd.concat(found) if found else pd.DataFrame({"article": [], "row": np.zeros(0, np.int32)})


def _supported(layout: ArticleLayout, asked: tuple[str, ...]) -> tuple[str, ...]:
    has = {"ict": True, "bfs": bool((np.diff(layout.offsets) > 1).any()), "wlp": bool(len(layout.links_L2))}
    lacks = {"bfs": "no article of several passages", "wlp": "no links between its articles"}
    for task in asked:
        if not has[task]:
            raise InputError(
                f"pair_tasks: {task} cannot be made of this corpus, which has {lacks[task]}; leave {task} out, or give "
                "`stillhouse ingest` articles (format article-tree or article-jsonl)"
            )
    return asked or tuple(task for task in TASKS if has[task])


class _Positives:
    """The relevant passages that a task allows. `possible_P` marks the passages whose sentences have one at all."""

    def __init__(self, layout: ArticleLayout, split_A: NDArray[np.int8], task: str, verbatim: bool) -> None:
        self._layout, self._task, self._verbatim = layout, task, verbatim
        sizes_A = np.diff(layout.offsets)
        if task == "ict":
            self.possible_P = (layout.neighbour_P >= 0) | verbatim
            return
        self.possible_P = layout.first_section_P.copy()
        if task == "bfs":
            self.possible_P &= sizes_A[layout.article_P] > 1
            return
        source_L, target_L = layout.links_L2.T
        inside_L = split_A[source_L] == split_A[target_L]
        source_L, target_L = source_L[inside_L], target_L[inside_L]
        self._sources_L = source_L[np.argsort(target_L, kind="stable")]
        self._links_A = np.bincount(target_L, minlength=layout.articles)
        self.possible_P &= self._links_A[layout.article_P] > 0

    def draw(self, rows_K: NDArray[np.int32], random: np.random.Generator) -> NDArray[np.int64]:
        """One relevant passage for a sentence of each of `rows_K`, int64 rows."""
        layout = self._layout
        if self._task == "ict":
            return rows_K.astype(np.int64) if self._verbatim else layout.neighbour_P[rows_K]
        articles_K = layout.article_P[rows_K]
        if self._task == "wlp":
            first_A = np.cumsum(self._links_A) - self._links_A
            articles_K = self._sources_L[first_A[articles_K] + random.integers(self._links_A[articles_K])]
        sizes_K, begin_K = np.diff(layout.offsets)[articles_K], layout.offsets[articles_K]
        if self._task == "wlp":
            return layout.passages_P[begin_K + random.integers(sizes_K)]
        # One of the other passages: a draw among one fewer, and those from the sentence's own passage on move up.
        other_K = random.integers(sizes_K - 1)
        return layout.passages_P[begin_K + other_K + (other_K >= layout.place_P[rows_K] - begin_K)]


def _draw(
    possible_S: NDArray[np.bool_],
    sentences: QuerySentences,
    layout: ArticleLayout,
    most: int,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """At most `most` of the possible sentences of each article, without repeats, ascending."""
    candidates = np.flatnonzero(possible_S)
    article = layout.article_P[sentences.rows_S[candidates]]
    order = np.lexsort((random.random(len(candidates)), article))
    article = article[order]
    rank = np.arange(len(article)) - np.searchsorted(article, article)
    return np.sort(candidates[order[rank < most]])


def _written(
    passages: TakenPassages,
    sentences: QuerySentences,
    chosen_K: NDArray[np.int64],
    positives_K: NDArray[np.int64],
    tasks_K: Sequence[str],
    splits_K: Sequence[str],
) -> list[PairQuery]:
    rows_K = sentences.rows_S[chosen_K]
    ids = passages.column("passage_id")
    own_K, other_K = (ids.take(pa.array(rows)).to_pylist() for rows in (rows_K, positives_K))
    spans_K, numbers_K = sentences.spans_S2[chosen_K].tolist(), sentences.numbers_S[chosen_K].tolist()
    texts_K = passages.texts_of(rows_K)
    return [
        PairQuery(f"{task}:{own}:{number}", " ".join(text[begin:end].split()), split, task, own, other)
        for text, (begin, end), number, split, task, own, other in zip(
            texts_K, spans_K, numbers_K, splits_K, tasks_K, own_K, other_K
        )
    ]


def sampled(split_K: NDArray[np.int8], choices: PairChoices) -> NDArray[np.bool_]:
    """Marks a seeded sample of at most `choices.most` queries, `choices.max_queries` of each split."""
    kept = np.ones(len(split_K), dtype=np.bool_)
    limits = [(0, choices.most, np.ones_like(kept))]
    for split, limit in choices.max_queries.items():
        number = SPLITS.index(split)
        limits.append((1 + number, limit, split_K == number))
    for stream, limit, own_K in limits:
        own = np.flatnonzero(own_K & kept)
        if limit and len(own) > limit:
            order = np.random.default_rng([choices.seed, len(SPLITS), 10 + stream]).permutation(own)
            kept[order[limit:]] = False
    return kept
