"""How well a model ranks dev queries: their positives among the best negatives of a real ranking.

Training steps and averages of weights are chosen by this. A loss over a few drawn candidates may fall while the ranking
of all of them gets worse. A model in training scores the candidates jointly in all processes. Batches depend on the
texts alone, so the scores do not depend on the number of processes.

Shapes: Q dev queries, K candidates of each, P pairs of a query and a candidate, R distinct candidates, N texts or
pairs, W numbers per text, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.core.arrays import chunks
from stillhouse.core.context import Context
from stillhouse.core.curves import DEV
from stillhouse.core.errors import NotFinite
from stillhouse.corpus.store import Corpus
from stillhouse.corpus.table_file import TextFile
from stillhouse.evaluation.measures import measure_named, per_query_of_rows
from stillhouse.evaluation.rankings import order_by_score
from stillhouse.evaluation.relevance import padded
from stillhouse.models.acceleration.device import on_device
from stillhouse.models.acceleration.processes import add_up, own_parts
from stillhouse.models.encoder import BiEncoder, length_batches
from stillhouse.models.pair_scores import PairScorer
from stillhouse.models.settings import BATCH_TOKENS
from stillhouse.models.towers import Role
from stillhouse.training.groups import GroupSampler
from stillhouse.training.settings import RANKINGS

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


def qrels_of_rows(corpus: Corpus, query_ids: NDArray[np.object_]) -> pd.DataFrame:
    """`query_id`, `passage_id` (the row, int32) and `relevance` of the positives of some dev queries."""
    qrels = corpus.relevant("dev")
    qrels = qrels[qrels["query_id"].isin(query_ids)]
    return qrels.assign(passage_id=corpus.rows_of(qrels["passage_id"]))[["query_id", "passage_id", "relevance"]]


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
        positives_QP = padded(*sampler.corpus.positives(ids))
        rows_QK = np.concatenate([positives_QP, sampler.best_negatives(queries_Q, depth)], axis=1)
        return cls(ids, sampler.texts[queries_Q], rows_QK, qrels_of_rows(sampler.corpus, ids))

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

    def measured(self, scores_P: NDArray[np.float32]) -> pd.DataFrame:
        """RR@10 and nDCG@10 of each query, float64, ranked by the scores of `pairs()`.

        Ties are in corpus order. Raises `NotFinite` for a score that is not finite.
        """
        if not np.isfinite(scores_P).all():
            raise NotFinite("a dev query's score is not finite; lower learning_rate")
        scores_QK = np.zeros(self.rows_QK.shape, dtype=np.float32)
        scores_QK[self.rows_QK >= 0] = scores_P
        rows_QK = order_by_score(scores_QK, self.rows_QK)[1][:, :CUTOFF]
        measures = [measure_named(name) for name in RANKINGS.values()]
        return per_query_of_rows(self.qrels, self.query_ids, rows_QK, measures)


TEXTS_AT_ONCE = 16_384
"""Texts tokenized together."""
PAIRS_AT_ONCE = 1 << 16
"""Pairs scored together."""
WHAT = "ranking dev queries"


Texts = NDArray[np.object_]
Compute = Callable[[NDArray[np.int64]], Tensor]
"""Computes the results of some rows of a tokenized part, [rows] or [rows, W]."""


def retriever_scores(
    candidates: DevCandidates, queries_QD: NDArray[np.float32], passages_RD: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The inner products [P], in fp32, of `candidates.pairs()`, from the vectors of its queries and its `passages`."""
    query_P, row_P = candidates.pairs()
    place_P = np.searchsorted(candidates.passages, row_P)
    parts = [
        np.einsum("pd,pd->p", queries_QD[query_P[part]], passages_RD[place_P[part]])
        for part in chunks(len(row_P), PAIRS_AT_ONCE)
    ]
    return np.concatenate(parts)


def score_by_retriever(
    encoder: BiEncoder, candidates: DevCandidates, passages: TextFile | Texts, context: Context
) -> NDArray[np.float32]:
    """Score `candidates.pairs()` with an encoder in evaluation mode, under the training's autocast."""
    device = context.torch_device()
    rows_R = candidates.passages
    total = len(candidates) + len(rows_R)
    with context.bar(WHAT, total, "text") as bar:

        def encode(texts: Sequence[str], role: Role) -> NDArray[np.float32]:
            def tokenized(part: NDArray[np.int64]) -> tuple[NDArray[np.int64], Compute]:
                cut = encoder.texts([texts[number] for number in part], role)
                return cut.lengths(), lambda rows: encoder(*cut.batch(rows, device), role)

            return _shared(len(texts), encoder.width, tokenized, device, bar)

        return retriever_scores(
            candidates, encode(list(candidates.texts), "query"), encode(list(passages[rows_R]), "passage")
        )


def score_by_reranker(
    model: PairScorer, candidates: DevCandidates, passages: TextFile | Texts, context: Context
) -> NDArray[np.float32]:
    """Score `candidates.pairs()` with a cross-encoder in evaluation mode, under the training's autocast."""
    device = context.torch_device()
    query_P, row_P = candidates.pairs()
    with context.bar(WHAT, len(row_P), "pair") as bar:

        def tokenized(part: NDArray[np.int64]) -> tuple[NDArray[np.int64], Compute]:
            pairs = model.pairs(list(candidates.texts[query_P[part]]), list(passages[row_P[part]]))
            return pairs.ids.lengths(), lambda rows: model(*pairs.batch(rows, device))

        return _shared(len(row_P), 1, tokenized, device, bar)[:, 0]


def _shared(
    count: int,
    width: int,
    tokenized: Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], Compute]],
    device: torch.device,
    bar: Any,
) -> NDArray[np.float32]:
    """Results float32 [N, W]. One process computes each batch; `tokenized(numbers)` gives lengths and a `Compute`."""
    out_NW = np.empty((count, width), dtype=np.float32)
    for part in chunks(count, TEXTS_AT_ONCE):
        lengths, compute = tokenized(part)
        batches = list(length_batches(lengths, BATCH_TOKENS))
        own = set(own_parts(len(batches)))
        made_NW = torch.zeros(len(part), width, device=device)
        for number, rows in enumerate(batches):
            if number in own:
                made_NW[on_device(rows, device)] = compute(rows).float().reshape(len(rows), width)
            bar.update(len(rows))
        add_up(made_NW)
        out_NW[part] = made_NW.cpu().numpy()
    return out_NW
