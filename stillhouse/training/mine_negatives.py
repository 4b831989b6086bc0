"""Mining turns rankings and other sources into one matrix of hard negatives, without right answers and repeats.

Passages without a qrel that a model nevertheless takes for right answers are left out by filters: a filter is an
`Accept`, and mining takes any number of them. Both existing filters compare a candidate's score with the scores of the
query's positives, which are computed even if a ranking did not find them. With several positives the lowest score
counts: a candidate that scores like a known answer is suspect.

Shapes: Q queries (train and dev), B some of them, K the depth of a ranking, D kept negatives, N passages, P pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.answer_matching import AnswerMatcher
from stillhouse.evaluation.rankings import Rows, first_kept, repeated
from stillhouse.evaluation.relevance import AnswerSets, never_negative
from stillhouse.training import rotation
from stillhouse.training.negatives import SPLITS, training_queries

if TYPE_CHECKING:
    from stillhouse.search.vector_index import VectorIndex

Accept = Callable[[NDArray[np.int64], NDArray[np.int32]], NDArray[np.bool_]]
"""`accept(query_P, row_P)`: whether each passage may be a negative of its query, bool [P].

Queries are numbered as in `training_queries`, passages by their rows.
"""

Score = Callable[[NDArray[np.int64], NDArray[np.int32]], NDArray[np.float32]]
"""`score(query_P, row_P)`: float32 [P], higher for a better answer."""


def limits(margin: float, positive_scores_P: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.float32]:
    """The score above which a candidate is taken for a right answer, float32 [Q].

    It is s - `margin` * |s| (below s for either sign), where s is the lowest score of a query's positives, which are
    `positive_scores_P[offsets[i]:offsets[i + 1]]`.
    """
    assert np.diff(offsets).all(), "every query has a positive"
    lowest_Q = np.minimum.reduceat(positive_scores_P, offsets[:-1]) if len(positive_scores_P) else positive_scores_P
    return (lowest_Q - margin * np.abs(lowest_Q)).astype(np.float32)


def below(score: Score, limits_Q: NDArray[np.float32]) -> Accept:
    """Accept candidates that score at most their query's limit."""
    return lambda query_P, row_P: score(query_P, row_P) <= limits_Q[query_P]


QUERIES_AT_ONCE = 4096
DRAWS_AT_ONCE = 2**23

Search = Callable[[NDArray[np.int64], int], tuple[Rows, NDArray[np.float32]]]
"""`search(queries_B, depth)`: rows and scores [B, K] of the best passages of the queries with these numbers."""


@dataclass(frozen=True)
class Pool:
    """`size` passages: those in `rows` (int32, ascending), or all if `rows` is None."""

    size: int
    rows: Rows | None = None

    def at(self, places: NDArray[np.int64]) -> Rows:
        """The rows of the passages at these places in the pool."""
        return places.astype(np.int32) if self.rows is None else self.rows[places]


class MiningQueries:
    """The train and dev queries of a corpus, and which passages may be negatives of each.

    A right answer (`never_negative`) may not. With `among="answers"`, only passages that answer another query of the
    same split may. If splits divide the passages, for example by article, passages of other splits are wrong for every
    train query, and a model that sees them as negatives memorizes them as wrong. "train_answers" does this for train
    queries alone; dev queries keep the whole corpus. With `without_answers`, a passage that holds one of the query's
    answers (`AnswerMatcher`) may not be its negative, as on NQ in SimLM Appendix B. Raises `InputError` if there are no
    answers to look for.
    """

    def __init__(self, corpus: Corpus, among: str = "corpus", without_answers: bool = False) -> None:
        self.queries: pd.DataFrame = training_queries(corpus)
        self.passages = corpus.passage_count
        self._split_Q = (self.queries["split"] == SPLITS[1]).to_numpy().astype(np.int64)
        offsets, right = never_negative(corpus, list(self.queries["query_id"]))
        self._answers = AnswerSets(offsets, right)
        self.most_answers = int(np.diff(offsets).max(initial=0))
        wrong = corpus.qrels[corpus.qrels["relevance"] == 0]
        number = pd.Index(self.queries["query_id"]).get_indexer(wrong["query_id"])
        self._wrong = pd.DataFrame({"query": number, "row": corpus.rows_of(wrong["passage_id"])})[number >= 0]
        self.matcher = AnswerMatcher.of(corpus, list(self.queries["query_id"])) if without_answers else None
        """What leaves out passages because of their text, so that their number is not known beforehand."""
        if self.matcher and not self.matcher.has_answers.any():
            raise InputError(
                "without_answers: the corpus has no answers of train and dev queries; leave it out, or ingest a source "
                "with answers"
            )
        self._pools: list[Pool] = []
        """The pool of each split; empty if all passages may be negatives of all queries."""
        if among != "corpus":
            split_R = np.repeat(self._split_Q, np.diff(offsets))
            limited = SPLITS if among == "answers" else SPLITS[:1]
            rows = [np.unique(right[split_R == split]) for split in range(len(limited))]
            self._in_pools = AnswerSets(np.cumsum([0, *map(len, rows)]), np.concatenate(rows))
            self._pools = [Pool(len(own), own) for own in rows]
            self._pools += [Pool(self.passages)] * (len(SPLITS) - len(limited))

    def __len__(self) -> int:
        return len(self.queries)

    def judged_first(self, rows_QD: Rows) -> Rows:
        """The passages that the source judges wrong (grade 0), in its order, before the others; no deeper than before.

        They come from people, or from negatives that a training file lists.
        """
        if not len(self._wrong):
            return rows_QD
        of_query = self._wrong.groupby("query").cumcount().to_numpy()
        wrong_QW = np.full((len(self), int(of_query.max()) + 1), -1, dtype=np.int32)
        wrong_QW[self._wrong["query"], of_query] = self._wrong["row"]
        kept_QD = np.empty_like(rows_QD)
        for queries_B, _ in self.pools():
            rows_BK = np.concatenate([wrong_QW[queries_B], rows_QD[queries_B]], axis=1)
            keep_BK = (rows_BK >= 0) & ~repeated(rows_BK)
            keep_BK[:, : wrong_QW.shape[1]] &= self.may_be_negative(queries_B, wrong_QW[queries_B])
            kept_QD[queries_B] = first_kept(rows_BK, keep_BK, rows_QD.shape[1])
        return kept_QD

    def pools(self) -> Iterator[tuple[NDArray[np.int64], Pool]]:
        """Blocks of queries that share the same possible negatives, with these passages."""
        parts = [(np.arange(len(self)), Pool(self.passages))]
        if self._pools:
            parts = [(np.flatnonzero(self._split_Q == split), pool) for split, pool in enumerate(self._pools)]
        for queries, pool in parts:
            for start in range(0, len(queries), QUERIES_AT_ONCE):
                yield queries[start : start + QUERIES_AT_ONCE], pool

    def may_be_negative(self, queries_B: NDArray[np.int64], rows_BK: Rows) -> NDArray[np.bool_]:
        """Whether each row may be a negative of its query; padding may not be."""
        may_BK = (rows_BK >= 0) & ~self._answers.hold(queries_B[:, None], rows_BK)
        for split, pool in enumerate(self._pools):
            if pool.rows is not None:
                own_B1 = (self._split_Q[queries_B] == split)[:, None]
                may_BK &= ~own_B1 | self._in_pools.hold(np.full((1, 1), split), rows_BK)
        if self.matcher is not None:
            place_P, column_P = np.nonzero(may_BK)
            may_BK[place_P, column_P] = ~self.matcher.match(queries_B[place_P], rows_BK[place_P, column_P])
        return may_BK


@doing("choosing hard negatives")
def ranked(
    asked: MiningQueries,
    search: Search,
    depth: int,
    limits_Q: NDArray[np.float32] | None = None,
    range_max: int | None = None,
) -> tuple[Rows, int]:
    """The best `depth` wrong passages of every query by a search, and how many scored above the limits.

    Those that score above `limits_Q` are left out. The search goes deeper by the number of right answers, which are
    removed afterwards, and to twice `depth` if limits or answers in the text leave out an unknown number. If only some
    passages may be negatives, it goes twice as deep as needed on average. `range_max` sets the search depth instead.
    """
    rows_QD = np.full((len(asked), depth), -1, dtype=np.int32)
    above = 0
    wanted = 2 * depth if limits_Q is not None or asked.matcher else depth
    for queries_B, pool in asked.pools():
        whole = pool.size == asked.passages
        needed = wanted if whole else 2 * math.ceil(wanted * asked.passages / max(1, pool.size))
        deep = min(asked.passages, range_max or asked.most_answers + needed)
        rows_BK, scores_BK = search(queries_B, deep)
        keep_BK = asked.may_be_negative(queries_B, rows_BK)
        if limits_Q is not None:
            above_BK = scores_BK > limits_Q[queries_B][:, None]
            above += int((keep_BK & above_BK).sum())
            keep_BK &= ~above_BK
        rows_QD[queries_B] = first_kept(rows_BK, keep_BK, depth)
    return rows_QD, above


@doing("choosing hard negatives")
def best_of(asked: MiningQueries, rows_QW: Rows, depth: int, accept: Sequence[Accept] = ()) -> tuple[Rows, int]:
    """The first `depth` rows of another source that may be negatives and that every filter accepts.

    Also return how many rows the filters dropped.
    """
    rows_QD = np.full((len(asked), depth), -1, dtype=np.int32)
    dropped = 0
    for queries_B, _ in asked.pools():
        rows_BW = np.asarray(rows_QW[queries_B])
        keep_BW = asked.may_be_negative(queries_B, rows_BW)
        before = int(keep_BW.sum())
        for filter in accept:
            place_P, column_P = np.nonzero(keep_BW)
            keep_BW[place_P, column_P] = filter(queries_B[place_P], rows_BW[place_P, column_P])
        dropped += before - int(keep_BW.sum())
        rows_QD[queries_B] = first_kept(rows_BW, keep_BW, depth)
    return rows_QD, dropped


def random_passages(asked: MiningQueries, taken_QD: Rows, count: int, seed: int) -> Rows:
    """Draw `count` passages per query from (seed, query), among possible negatives that are not in `taken_QD`.

    There are fewer if no more are left.
    """
    rows_QC = np.full((len(asked), count), -1, dtype=np.int32)
    barred = taken_QD.shape[1] + asked.most_answers
    for all_queries_B, pool in asked.pools() if count else ():
        # Few passages are all taken in random order; from many, draw often enough that enough are new.
        few = pool.size <= 8 * (count + barred)
        columns_K = np.arange(pool.size if few else 2 * count + 64)
        at_once = max(1, DRAWS_AT_ONCE // max(1, len(columns_K)))
        for start in range(0, len(all_queries_B), at_once):
            queries_B = all_queries_B[start : start + at_once]
            keys_BK = rotation.keys(seed, rotation.RANDOM, queries_B, columns_K)
            places_BK = np.argsort(keys_BK, axis=1) if few else (keys_BK % np.uint64(pool.size)).astype(np.int64)
            rows_BK = np.concatenate([taken_QD[queries_B], pool.at(places_BK)], axis=1)
            keep_BK = asked.may_be_negative(queries_B, rows_BK) & ~repeated(rows_BK)
            keep_BK[:, : taken_QD.shape[1]] = False
            rows_QC[queries_B] = first_kept(rows_BK, keep_BK, count)
    return rows_QC


def interleaved(sources: Sequence[Rows]) -> Rows:
    """Merge several sources into one matrix, each spread evenly, so any first part has its share of every source.

    In a source of depth D, negative j (from 0) is placed at (j + 1/2) / D of the whole; ties go to the earlier source.
    A passage from two sources keeps its first place, and gaps are closed.
    """
    places = np.concatenate([(np.arange(rows.shape[1]) + 0.5) / max(1, rows.shape[1]) for rows in sources])
    order = np.argsort(places, kind="stable")
    rows_QD = np.empty((len(sources[0]), len(order)), dtype=np.int32)
    for start in range(0, len(rows_QD), QUERIES_AT_ONCE):
        part = slice(start, start + QUERIES_AT_ONCE)
        rows_BD = np.concatenate([rows[part] for rows in sources], axis=1)[:, order]
        rows_QD[part] = first_kept(rows_BD, (rows_BD >= 0) & ~repeated(rows_BD), len(order))
    return rows_QD


@dataclass(frozen=True)
class DenseRanking:
    """Ranks an index's passages by query vectors, and scores any pair as the index does.

    `on_gpu(depth)` says whether to search at this depth on a GPU.
    """

    vectors_QD: NDArray[np.float32]
    index: VectorIndex
    on_gpu: Callable[[int], bool] = lambda depth: False

    def search(self, queries_B: NDArray[np.int64], depth: int) -> tuple[Rows, NDArray[np.float32]]:
        return self.index.search(self.vectors_QD[queries_B], depth, gpu=self.on_gpu(depth))

    def score(self, query_P: NDArray[np.int64], row_P: Rows) -> NDArray[np.float32]:
        """Inner products of queries and passage vectors in the index, float32 [P]."""
        return self.index.products(self.vectors_QD, query_P, row_P)
