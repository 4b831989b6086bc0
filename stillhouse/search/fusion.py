"""Fuses several scores of a passage: a weighted sum fitted on judged queries, or a sum of scaled scores.

Shape suffixes: Q queries, K candidates of a query, F scores of a candidate (BM25's, the retriever's, …).
"""

import numpy as np
from numpy.typing import NDArray

RIDGE = 1e-3
"""Adds RIDGE/2 · |w·deviation|² to the loss. It keeps weights finite if the scores separate right from wrong."""
BLOCK = 512  # queries


def fit_weights(
    scores_QKF: NDArray[np.floating], candidate_QK: NDArray[np.bool_], positive_QK: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The non-negative weights, float64 [F], that make the positives most likely.

    A candidate's fused score is `scores · weights`. The probability of a positive is its softmax among itself and its
    query's negatives. The weights minimise the mean negative log-likelihood over the positives, a convex problem. The
    softmax fixes their scale, so fused scores can teach without a temperature. Queries without a positive or a
    negative among their candidates are left out. Raises `ValueError` if no query is left.
    """
    from scipy.optimize import minimize  # takes a quarter of a second, which would delay a search

    negative_QK = candidate_QK & ~positive_QK
    positive_QK = candidate_QK & positive_QK
    useful_Q = positive_QK.any(axis=1) & negative_QK.any(axis=1)
    if not useful_Q.any():
        raise ValueError("no query has a positive and a negative among its candidates")
    scores_QKF = np.asarray(scores_QKF[useful_Q], dtype=np.float64)
    positive_QK, negative_QK = positive_QK[useful_Q], negative_QK[useful_Q]
    deviation_F = scores_QKF[positive_QK | negative_QK].std(axis=0)
    deviation_F[deviation_F == 0] = 1.0
    scaled_QKF = scores_QKF / deviation_F

    def loss(weights_F: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient_F, positives = 0.0, np.zeros(len(weights_F)), 0
        for start in range(0, len(scaled_QKF), BLOCK):
            part = slice(start, start + BLOCK)
            one, slope_F = _negative_log_likelihood(scaled_QKF[part], positive_QK[part], negative_QK[part], weights_F)
            value, gradient_F = value + one, gradient_F + slope_F
            positives += int(positive_QK[part].sum())
        ridge = RIDGE / 2 * float(weights_F @ weights_F)
        return value / positives + ridge, gradient_F / positives + RIDGE * weights_F

    start_F = np.ones(scaled_QKF.shape[2])
    found = minimize(loss, start_F, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(start_F))
    return np.asarray(found.x / deviation_F, dtype=np.float64)


def _negative_log_likelihood(
    scores_QKF: NDArray[np.float64],
    positive_QK: NDArray[np.bool_],
    negative_QK: NDArray[np.bool_],
    weights_F: NDArray[np.float64],
) -> tuple[float, NDArray[np.float64]]:
    """The sum over positives of -log softmax among the positive and its query's negatives, with its gradient [F]."""
    fused_QK = scores_QKF @ weights_F
    masked_QK = np.where(negative_QK, fused_QK, -np.inf)
    highest_Q1 = masked_QK.max(axis=1, keepdims=True)
    odds_QK = np.exp(masked_QK - highest_Q1)
    total_Q = odds_QK.sum(axis=1)
    log_total_Q = np.log(total_Q) + highest_Q1[:, 0]
    query_P, column_P = np.nonzero(positive_QK)
    gap_P = log_total_Q[query_P] - fused_QK[query_P, column_P]
    wrong_P = 1.0 / (1.0 + np.exp(-np.clip(gap_P, -700, 700)))
    mean_QF = np.einsum("qk,qkf->qf", odds_QK / total_Q[:, None], scores_QKF)
    gradient_F = wrong_P @ (mean_QF[query_P] - scores_QKF[query_P, column_P])
    return float(np.logaddexp(0.0, gap_P).sum()), gradient_F


def convex_combination(
    bm25_QK: NDArray[np.floating], dense_QK: NDArray[np.floating], candidate_QK: NDArray[np.bool_], share: float
) -> NDArray[np.float32]:
    """The weighted sum of both scores, each scaled to [0, 1] per query, float32 [Q, K].

    `share` is the weight of the dense score. Dense scores are scaled between the lowest and the highest candidate's,
    BM25 scores between 0 and the highest candidate's (Bruch, Gai and Ingber 2023, "An Analysis of Fusion Functions for
    Hybrid Retrieval"). This needs no judged queries.
    """
    low_Q1 = np.where(candidate_QK, dense_QK, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    high_Q1 = np.where(candidate_QK, dense_QK, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    range_Q1 = np.where(high_Q1 > low_Q1, high_Q1 - low_Q1, 1.0)
    most_Q1 = np.where(candidate_QK, bm25_QK, 0.0).max(axis=1, keepdims=True, initial=0.0)
    dense_QK = (dense_QK - np.where(np.isfinite(low_Q1), low_Q1, 0.0)) / range_Q1
    fused_QK = share * dense_QK + (1.0 - share) * bm25_QK / np.where(most_Q1 > 0, most_Q1, 1.0)
    return np.where(candidate_QK, fused_QK, 0.0).astype(np.float32)
