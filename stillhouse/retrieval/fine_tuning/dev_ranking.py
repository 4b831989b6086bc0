"""How well a model ranks dev queries: their positives among the best negatives of a real ranking.

Training steps and averages of weights are chosen by this. A loss over a few drawn candidates may fall while the ranking
of all of them gets worse.

Shapes: Q dev queries, K candidates of each, P pairs of a query and a candidate, R distinct candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stillhouse.curves import DEV
from stillhouse.errors import NotFinite
from stillhouse.evaluation.measures import measure_named, per_query_of_rows
from stillhouse.evaluation.rankings import order_by_score
from stillhouse.retrieval.fine_tuning.groups import GroupSampler
from stillhouse.retrieval.settings import RANKINGS

CUTOFF = 10
"""The cutoff of the measures."""
SAMPLE = 2**33
"""The second part of the seed of a sample of dev queries; larger than any epoch."""


def signal(metric: str) -> str:
    """The signal's name for a measure that settings call, for example, "rr10"."""
    return DEV + RANKINGS[metric]


def sample(count: int, size: int, seed: int) -> NDArray[np.int64]:
    """Draw `size` of the numbers 0..count-1 from the seed, ascending; a larger sample contains every smaller one."""
    order = np.random.default_rng([seed, SAMPLE]).permutation(count)
    return np.sort(order[:size])


@dataclass(frozen=True)
class DevCandidates:
    """Dev queries and their candidates: rows of passages, positives before negatives, padded with -1.

    `qrels` has `query_id`, `passage_id` (the row, int32) and `relevance` of all positives of these queries.
    """

    query_ids: NDArray[np.object_]
    texts: NDArray[np.object_]
    rows_QK: NDArray[np.int32]
    qrels: pd.DataFrame

    @classmethod
    def of(cls, sampler: GroupSampler, queries_Q: NDArray[np.int64], depth: int) -> DevCandidates:
        """All positives and the best `depth` negatives of some queries of a dev sampler.

        Raises `InputError` for negatives that are right answers or not passages of the corpus.
        """
        ids = sampler.query_ids[queries_Q]
        counts_Q = np.diff(sampler.offsets)[queries_Q]
        place_P = np.arange(counts_Q.max()) < counts_Q[:, None]
        positives_QP = np.full(place_P.shape, -1, dtype=np.int32)
        starts_Q1 = sampler.offsets[queries_Q][:, None]
        positives_QP[place_P] = sampler.positives[(starts_Q1 + np.arange(counts_Q.max()))[place_P]]
        qrels = sampler.corpus.relevant("dev")
        qrels = qrels[qrels["query_id"].isin(ids)]
        judged = pd.DataFrame(
            {
                "query_id": qrels["query_id"],
                "passage_id": sampler.corpus.rows_of(qrels["passage_id"]),
                "relevance": qrels["relevance"],
            }
        )
        rows_QK = np.concatenate([positives_QP, sampler.best_negatives(queries_Q, depth)], axis=1)
        return cls(ids, sampler.texts[queries_Q], rows_QK, judged)

    def __len__(self) -> int:
        return len(self.query_ids)

    def take(self, places_B: NDArray[np.int64]) -> DevCandidates:
        """The candidates of some of the queries."""
        ids = self.query_ids[places_B]
        judged = self.qrels[self.qrels["query_id"].isin(ids)]
        return DevCandidates(ids, self.texts[places_B], self.rows_QK[places_B], judged)

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Every query with each of its candidates: query numbers and passage rows, [P] each, query by query."""
        query_P, column_P = np.nonzero(self.rows_QK >= 0)
        return query_P, self.rows_QK[query_P, column_P]

    @property
    def passages(self) -> NDArray[np.int32]:
        """The distinct rows [R] of all candidates, ascending."""
        return np.unique(self.rows_QK[self.rows_QK >= 0])

    def measured(self, scores_P: NDArray[np.float32]) -> Mapping[str, float]:
        """Mean RR@10 and nDCG@10 over the queries, ranked by the scores of `pairs()`.

        Ties are in corpus order. Raises `NotFinite` for a score that is not finite.
        """
        if not np.isfinite(scores_P).all():
            raise NotFinite("a dev query's score is not finite; lower learning_rate")
        scores_QK = np.zeros(self.rows_QK.shape, dtype=np.float32)
        scores_QK[self.rows_QK >= 0] = scores_P
        rows_QK = order_by_score(scores_QK, self.rows_QK)[1][:, :CUTOFF]
        measures = [measure_named(name) for name in RANKINGS.values()]
        means = per_query_of_rows(self.qrels, self.query_ids, rows_QK, measures).mean()
        return {name: float(means[name]) for name in RANKINGS.values()}
