"""How BM25, a retriever and their fusion rank the dev queries, which decides between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillhouse.evaluation.rankings import order_by_score
from stillhouse.retrieval.mining.judged_queries import JudgedQueries
from stillhouse.retrieval.search.hybrid import Fusion, HybridIndex, fit_fusion, fused_scores, unfitted

FEWEST_TO_FIT = 30
"""With fewer labelled queries, `auto` fits no weights: these may leave the retriever none (docs/findings.md)."""


@dataclass(frozen=True)
class MeasuredRankings:
    """A fitted fusion, and RR@10 float64 [Q] of `bm25`, `dense` and `hybrid` on the queries that it was fitted on.

    `rows_QK` are the candidates of BM25 and the retriever, int32, padded with -1. Fitting two weights on a hundred
    queries or more raises the figure of `hybrid` by less than 0.001.
    """

    fusion: Fusion
    reciprocal_ranks: Mapping[str, NDArray[np.float64]]
    rows_QK: NDArray[np.int32]


def measure_rankings(
    hybrid: HybridIndex,
    judged: JudgedQueries,
    vectors_QD: NDArray[np.float32],
    depth: int,
    method: str = "auto",
    gpu: bool = False,
) -> MeasuredRankings:
    """Fit the fusion on judged queries with the vectors `vectors_QD`, and measure all three rankings on them.

    `auto` fits weights on labelled queries alone, at least `FEWEST_TO_FIT`. Queries made from the corpus repeat its
    words, so weights fitted on them trust BM25 too much; `auto` uses `spread` for these.
    """
    found = hybrid.candidates(judged.texts, vectors_QD, depth, gpu)
    fusion = None
    if method == "weights" or (method == "auto" and judged.labelled and len(judged) >= FEWEST_TO_FIT):
        fusion = fit_fusion(found, judged.right(found.rows_QK), judged.judged(found.rows_QK), depth)
    fusion = fusion or unfitted(method, depth, hybrid.index)
    scores = {
        "bm25": np.where(found.ranks_QKF[:, :, 0] > 0, -found.ranks_QKF[:, :, 0], -np.inf),
        "dense": np.where(found.ranks_QKF[:, :, 1] > 0, -found.ranks_QKF[:, :, 1], -np.inf),
        "hybrid": fused_scores(fusion, found),
    }
    ranked = {name: _ranked(values_QK, found.rows_QK) for name, values_QK in scores.items()}
    ranks = {name: judged.reciprocal_ranks(rows_QK) for name, rows_QK in ranked.items()}
    return MeasuredRankings(fusion, ranks, found.rows_QK)


def _ranked(scores_QK: NDArray[np.floating], rows_QK: NDArray[np.int32]) -> NDArray[np.int32]:
    """The rows by descending score, without those scored -inf."""
    return order_by_score(scores_QK, np.where(np.isneginf(scores_QK), np.int32(-1), rows_QK))[1]
