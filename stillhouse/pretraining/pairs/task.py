"""Pairs from a token cache: the training and held-out rows of a mixture of tasks, and their batches (Chang et al. §3,
§4.1).

Shape suffixes: B pairs, N all passages, K spans of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.articles import Articles
from stillhouse.pretraining.pairs.articles import Sentences, ordinary_sentences, require_structure
from stillhouse.pretraining.pairs.batch import PairBatch, assemble
from stillhouse.pretraining.pairs.settings import TASK_NAMES, PairConfig
from stillhouse.pretraining.pairs.structure import PassageStructure
from stillhouse.pretraining.pairs.tasks import TaskPairs, bfs_pairs, ict_pairs, wlp_pairs
from stillhouse.pretraining.tokens import TokenCache

HELDOUT = 1
"""Second part of the seed that holds out articles."""
NEEDS = {
    "ict": "passages of two sentences (longer ones of `stillhouse ingest`, or a higher max_length of "
    "`stillhouse tokenize`)",
    "bfs": "articles of several passages with headings (`stillhouse ingest` a folder of Markdown files, or "
    "articles.jsonl)",
    "wlp": "links between articles (`stillhouse ingest` articles that link to each other)",
}
"""What a corpus must have for each task."""
Side = dict[str, TaskPairs]
"""The tasks that have a source among the training passages or among the held-out ones."""


@dataclass(frozen=True)
class PairDraw:
    """Drawn pairs: `task` (index in `settings.TASKS`), `source`, `sentence` (in `Sentences`) and `target`, int64 [B].

    `kept` bool [B]: the sentence stays in its passage (ict).
    """

    task: NDArray[np.int64]
    source: NDArray[np.int64]
    sentence: NDArray[np.int64]
    target: NDArray[np.int64]
    kept: NDArray[np.bool_]


@dataclass(frozen=True)
class PairMaker:
    """`maker(rows, rng) -> PairBatch`: a pair for every row.

    `training` and `heldout` int64 are the rows from which some task can take a query; their pairs share no article.
    `skipped` passages can be neither source nor target of any task. `log_q_N` float64: the log of the probability that
    a pair drawn from a row's side has the row as target (-inf: never).
    """

    cache: TokenCache
    config: PairConfig
    device: torch.device
    structure: PassageStructure
    sentences: Sentences
    articles: Articles
    heldout_N: NDArray[np.bool_]
    sides: tuple[Side, Side]
    training: NDArray[np.int64]
    heldout: NDArray[np.int64]
    skipped: int
    log_q_N: NDArray[np.float64]

    def __call__(self, rows: NDArray[np.int64], rng: np.random.Generator) -> PairBatch:
        return self.batch(self.draw(rows, rng))

    def draw(self, rows: NDArray[np.int64], rng: np.random.Generator) -> PairBatch:
        """Draw one pair per row with its texts, in CPU memory, so that this can run ahead in another thread."""
        return self._texts(self._pairs(rows, rng))

    def batch(self, drawn: PairBatch) -> PairBatch:
        """Move a drawn batch to the device."""
        return drawn.to(self.device)

    def facts(self) -> dict[str, dict[str, int]]:
        """How many passages each task takes queries from: `pair_sources` for training, `heldout_pair_sources` held out.

        A task that is missing from the second has no held-out pairs.
        """
        names = ("pair_sources", "heldout_pair_sources")
        return {
            name: {task: len(pairs.sources) for task, pairs in side.items()} for name, side in zip(names, self.sides)
        }

    def _pairs(self, rows_B: NDArray[np.int64], rng: np.random.Generator) -> PairDraw:
        """Draw one pair per row; all randomness comes from `rng`.

        A pair's task is drawn uniformly (Chang et al. §4.1). Its source is the row if the task can take a query from
        it, else a source of the task drawn uniformly from the row's side, so that uniform rows give uniform sources.
        """
        task_B = np.empty(len(rows_B), dtype=np.int64)
        source_B, target_B = rows_B.copy(), rows_B.copy()
        for number, side in enumerate(self.sides):
            here = np.flatnonzero(self.heldout_N[rows_B] == bool(number))
            names = list(side)
            choice = rng.integers(0, max(1, len(names)), size=len(here))
            for place, name in enumerate(names):
                at = here[choice == place]
                task_B[at] = TASK_NAMES.index(name)
                foreign = at[~_contains(side[name].sources, rows_B[at])]
                source_B[foreign] = rng.choice(side[name].sources, size=len(foreign))
                article = self.structure.article[source_B[at]]
                if name == "bfs":
                    target_B[at] = self.articles.draw_bfs(article, source_B[at], rng)
                elif name == "wlp":
                    target_B[at] = self.articles.draw_wlp(article, rng)
                else:
                    target_B[at] = source_B[at]
        first_B = self.sentences.offsets[source_B]
        sentence_B = rng.integers(first_B, self.sentences.offsets[source_B + 1])
        kept_B = rng.random(len(rows_B)) < self.config.ict_keep
        return PairDraw(task_B, source_B, sentence_B, target_B, kept_B)

    def _texts(self, pairs: PairDraw) -> PairBatch:
        """The texts of drawn pairs: the sentence, and the target's title and text, without the sentence for ict."""
        cache, config = self.cache, self.config
        begin_B, end_B = self.sentences.begins[pairs.sentence], self.sentences.ends[pairs.sentence]
        query = assemble(
            cache.ids,
            cache.specials,
            begin_B[:, None],
            (end_B - begin_B)[:, None],
            config.pair_query_tokens,
            separated=False,
        )
        title_B, stop_B = cache.offsets[pairs.target], cache.offsets[pairs.target + 1]
        text_B = title_B + self.structure.title_lengths[pairs.target]
        cut_B = (pairs.task == TASK_NAMES.index("ict")) & ~pairs.kept
        gap_B, resume_B = np.where(cut_B, begin_B, stop_B), np.where(cut_B, end_B, stop_B)
        lengths_BK = np.stack([text_B - title_B, gap_B - text_B, stop_B - resume_B], axis=1)
        if config.pair_title == "none":
            lengths_BK[:, 0] = 0
        elif config.pair_title == "sep":  # titles of a corpus with `titles: sep` already end in [SEP]
            length_B, sep = lengths_BK[:, 0], cache.specials.sep
            while (ended_B := (length_B > 0) & (cache.ids[title_B + length_B - 1] == sep)).any():
                length_B -= ended_B
        passage = assemble(
            cache.ids,
            cache.specials,
            np.stack([title_B, text_B, resume_B], axis=1),
            lengths_BK,
            config.pair_passage_tokens,
            separated=config.pair_title == "sep",
        )
        log_q_B = self.log_q_N[pairs.target].astype(np.float32)
        arrays = (*query, *passage, pairs.task, pairs.source, pairs.target, log_q_B)
        return PairBatch(*map(torch.from_numpy, arrays))


@doing("looking for pairs of texts")
def open_pairs(
    cache: TokenCache,
    tasks: Sequence[str],
    config: PairConfig,
    *,
    heldout_fraction: float,
    max_eval_samples: int,
    seed: int,
    device: torch.device,
) -> PairMaker:
    """Find the pairs that every task can draw. `tasks` are names in `settings.TASKS`.

    A task without a held-out pair (two linked articles are seldom both held out) is left out of the held-out mixture.
    Raises `InputError` if the tokens have no sentences, if the corpus lacks the articles, sections or links that a task
    needs, and if no pair is held out or left to train on.
    """
    structure = require_structure(cache)
    sentences = ordinary_sentences(cache)
    counts_N = sentences.counts()
    usable_N = counts_N >= 1
    heldout_N = heldout_passages(structure.article, usable_N, heldout_fraction, max_eval_samples, seed)
    articles = Articles.of(structure.article, structure.links, usable_N, heldout_N)
    of_articles = articles, structure.article, structure.lead

    def side(among_N: NDArray[np.bool_]) -> Side:
        makers = {
            "ict": lambda: ict_pairs(counts_N, among_N),
            "bfs": lambda: bfs_pairs(*of_articles, among_N),
            "wlp": lambda: wlp_pairs(*of_articles, among_N),
        }
        found = {name: makers[name]() for name in tasks}
        return {name: pairs for name, pairs in found.items() if len(pairs.sources)}

    training, heldout = (side(usable_N & (heldout_N == held)) for held in (False, True))
    headings = (~structure.lead & (structure.article >= 0)).any()  # without any, there is no first section
    for name in tasks:
        if name not in training or (name == "bfs" and not headings):
            lower = f"lower heldout_fraction from {heldout_fraction}, " if name in heldout else ""
            raise InputError(
                f"{name} has no pair outside the held-out articles: it needs {NEEDS[name]}; {lower}use another corpus, "
                f"or an objective without {name}"
            )
    if not heldout:
        raise InputError(
            f"the held-out articles contain no pair of {'+'.join(tasks)}; raise heldout_fraction from "
            f"{heldout_fraction} (or max_eval_samples from {max_eval_samples}), or use a larger corpus"
        )
    q_N = _mixture(training) + _mixture(heldout)
    sides = training, heldout
    rows, kept = (np.unique(np.concatenate([pairs.sources for pairs in each.values()])) for each in sides)
    used_N = q_N > 0
    used_N[np.concatenate([rows, kept])] = True
    with np.errstate(divide="ignore"):
        log_q_N = np.log(q_N)
    skipped = len(cache) - int(used_N.sum())
    return PairMaker(
        cache, config, device, structure, sentences, articles, heldout_N, sides, rows, kept, skipped, log_q_N
    )


def heldout_passages(
    article_N: NDArray[np.int32], usable_N: NDArray[np.bool_], fraction: float, limit: int, seed: int
) -> NDArray[np.bool_]:
    """True at the passages of held-out articles, bool [N]; depends only on the arguments.

    Whole articles are held out, so that no held-out pair shares an article with a training pair: `fraction` of the
    articles with a usable passage, at least one, with at most `limit` usable passages in total unless the first article
    alone has more. A passage without an article counts as its own article. Raises `InputError` for fewer than two
    articles.
    """
    alone = len(article_N) + np.arange(len(article_N))
    group_N = np.where(article_N >= 0, article_N, alone)
    groups, sizes = np.unique(group_N[usable_N], return_counts=True)
    if len(groups) < 2:
        raise InputError(
            f"pair tasks hold out whole articles, but the number of articles with sentences is {len(groups)}; "
            "`stillhouse ingest` a corpus of several articles"
        )
    order = np.random.default_rng([seed, HELDOUT]).permutation(len(groups))
    within = int(np.searchsorted(np.cumsum(sizes[order]), limit, side="right"))
    count = min(max(1, round(len(groups) * fraction)), max(1, within), len(groups) - 1)
    return np.isin(group_N, groups[order[:count]])


def _mixture(side: Side) -> NDArray[np.float64]:
    """The probability of each row to be the target of a pair if tasks are drawn uniformly, float64 [N]."""
    mixture: NDArray[np.float64] = np.mean([pairs.probability for pairs in side.values()], axis=0)
    return mixture


def _contains(ascending: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    places = np.searchsorted(ascending, rows)
    return ascending[np.minimum(places, len(ascending) - 1)] == rows
