"""How likely a system's scores make the right answers, to compare systems on few dev queries.

RR@10 changes only if a right answer changes its rank, so two systems differ on a few of a hundred queries and chance
decides between them. The log-likelihood measures how far the right answer is ahead or behind in every query. On
repeatedly drawn dev queries it chooses a better system (benchmarks/quality.md).

Shape suffixes: Q queries, P right answers of a query, K candidates of a system, U candidates of all systems.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stillhouse.evaluation.rankings import Rows, first_kept, repeated
from stillhouse.retrieval.search.fusion import fit_weights


def common_candidates(brought: Sequence[Rows], answers_QP: Rows) -> Rows:
    """The candidates of all systems and the right answers, int32 [Q, U], each once per query and padded with -1.

    Likelihoods are compared over the same candidates. A right answer is included, with its score, even if a system
    did not find it.
    """
    rows_QU = np.concatenate([*brought, answers_QP], axis=1)
    kept_QU = (rows_QU >= 0) & ~repeated(rows_QU)
    return first_kept(rows_QU, kept_QU, int(kept_QU.sum(axis=1).max(initial=0)))


def log_likelihoods(
    scores_QU: NDArray[np.floating], judged_QU: NDArray[np.bool_], right_QU: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """log softmax of the best right answer among itself and the wrong ones, float64 [Q]; at most 0.

    Scores are multiplied by the factor that makes the right answers most likely (`fit_weights`), so systems with
    different score scales are comparable. `judged_QU` marks the candidates that are right or wrong. The value is 0 for
    a query without a right or without a wrong candidate.
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
