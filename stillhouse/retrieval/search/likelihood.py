"""How likely the scores of a system make the right answers: what systems are compared by on few dev queries.

RR@10 changes only where a right answer changes its rank, so two systems differ on a few of a hundred queries and chance
decides between them. The log-likelihood reads how far the right answer is ahead or behind in every query. Drawn again
and again, the dev queries choose a better system by it (benchmarks/quality.md).

Shape suffixes: Q queries, P right answers of one, K candidates that a system brings, U candidates of all systems.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stillhouse.evaluation.rankings import Rows, first_kept, repeated
from stillhouse.retrieval.search.fusion import fit_weights


def common_candidates(brought: Sequence[Rows], answers_QP: Rows) -> Rows:
    """The candidates of all systems and the right answers, int32 [Q, U], each once in a query and padded with -1.

    Likelihoods are compared over the same candidates. Where a system does not find a right answer, that answer is
    there all the same, and has its score.
    """
    rows_QU = np.concatenate([*brought, answers_QP], axis=1)
    kept_QU = (rows_QU >= 0) & ~repeated(rows_QU)
    return first_kept(rows_QU, kept_QU, int(kept_QU.sum(axis=1).max(initial=0)))


def log_likelihoods(
    scores_QU: NDArray[np.floating], judged_QU: NDArray[np.bool_], right_QU: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """log softmax of the best right answer among itself and the wrong ones, float64 [Q]; at most 0.

    Scores are multiplied by the one factor under which the right answers are likeliest (`fit_weights`), so that systems
    with scores of different scales can be compared. `judged_QU` marks the candidates that are right or wrong. It is 0
    for a query without a right or a wrong candidate, which says nothing.
    """
    right_QU, wrong_QU = right_QU & judged_QU, judged_QU & ~right_QU
    try:
        [factor] = fit_weights(scores_QU[:, :, None], judged_QU, right_QU)
    except ValueError:
        return np.zeros(len(scores_QU))
    scaled_QU = np.asarray(scores_QU, dtype=np.float64) * factor
    best_Q = np.where(right_QU, scaled_QU, -np.inf).max(axis=1)
    useful_Q = right_QU.any(axis=1) & wrong_QU.any(axis=1)
    found_Q = np.zeros(len(scores_QU))
    gaps_QU = np.where(wrong_QU, scaled_QU, -np.inf)[useful_Q] - best_Q[useful_Q, None]
    found_Q[useful_Q] = -np.logaddexp.reduce(np.concatenate([gaps_QU, np.zeros((len(gaps_QU), 1))], axis=1), axis=1)
    return found_Q
