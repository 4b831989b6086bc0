"""Fusion of scores: weights compared with a slow optimiser, scaled scores with a table computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from stillhouse.search.fusion import RIDGE, convex_combination, fit_weights


def made(seed: int, queries: int = 40, candidates: int = 7, kinds: int = 2) -> tuple[np.ndarray, ...]:
    """Scores of several kinds: the first says much about the positives, the others little."""
    rng = np.random.default_rng(seed)
    positive_QK = np.zeros((queries, candidates), dtype=bool)
    positive_QK[np.arange(queries), rng.integers(candidates, size=queries)] = True
    positive_QK[rng.random(queries) < 0.2, 0] = True
    candidate_QK = positive_QK | (rng.random(positive_QK.shape) < 0.8)
    scores_QKF = rng.normal(size=(queries, candidates, kinds)) * [5.0, *[0.1] * (kinds - 1)]
    scores_QKF[:, :, 0] += 6.0 * positive_QK
    scores_QKF[:, :, 1] += 0.05 * positive_QK
    return scores_QKF, candidate_QK, positive_QK


def slow_loss(
    weights_F: np.ndarray, scores_QKF: np.ndarray, candidate_QK: np.ndarray, positive_QK: np.ndarray
) -> float:
    """The objective, written out pair by pair in float64."""
    losses, seen = [], []
    for scores_KF, candidate_K, positive_K in zip(scores_QKF, candidate_QK, positive_QK):
        right, wrong = scores_KF[candidate_K & positive_K], scores_KF[candidate_K & ~positive_K]
        if len(right) and len(wrong):
            seen += [*right, *wrong]
            for one in right:
                everything = np.array([one @ weights_F, *(wrong @ weights_F)])
                losses.append(-np.log(np.exp(everything[0]) / np.exp(everything).sum()))
    scaled_F = weights_F * np.std(seen, axis=0)
    return float(np.mean(losses) + RIDGE / 2 * scaled_F @ scaled_F)


@pytest.mark.parametrize("seed", range(3))
def test_the_weights_are_the_likeliest(seed: int) -> None:
    data = made(seed)
    found_F = fit_weights(*data)
    slow = minimize(slow_loss, [0.1, 1.0], args=data, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12})
    assert slow_loss(found_F, *data) <= slow.fun + 1e-6
    if (slow.x >= 0).all():
        assert found_F == pytest.approx(slow.x, rel=2e-2, abs=2e-2)


def test_a_perfect_score_keeps_its_weight_finite() -> None:
    positive_QK = np.eye(5, dtype=bool)
    weights_F = fit_weights(positive_QK[:, :, None] * 3.0, np.ones_like(positive_QK), positive_QK)
    assert np.isfinite(weights_F).all() and weights_F[0] > 0


def test_uninformative_queries_do_not_change_the_weights() -> None:
    scores_QKF, candidate_QK, positive_QK = made(3)
    before_F = fit_weights(scores_QKF, candidate_QK, positive_QK)
    silent_QK = np.ones((4, positive_QK.shape[1]), dtype=bool)
    extended = (
        np.concatenate([scores_QKF, np.full((8, *scores_QKF.shape[1:]), 9.0)]),
        np.concatenate([candidate_QK, silent_QK, silent_QK]),
        np.concatenate([positive_QK, silent_QK, ~silent_QK]),  # all right, all wrong
    )
    assert fit_weights(*extended) == pytest.approx(before_F, rel=1e-6)
    with pytest.raises(ValueError, match="no query"):
        fit_weights(scores_QKF, candidate_QK, ~positive_QK & positive_QK)


def test_a_convex_combination_by_hand() -> None:
    """Dense scores of 0.2 to 0.6 and BM25 scores of 0 to 8 are scaled to 0 to 1. Equal scores all become 0."""
    bm25 = np.array([[8.0, 2.0, 0.0, 99.0], [0.0, 0.0, 0.0, 0.0]])
    dense = np.array([[0.2, 0.6, 0.5, 99.0], [0.4, 0.4, 0.4, 0.4]])
    candidate = np.array([[True, True, True, False], [True, True, True, True]])
    expected = [[0.25, 0.75 + 0.25 * 0.25, 0.75 * 0.75, 0.0], [0.0, 0.0, 0.0, 0.0]]
    assert convex_combination(bm25, dense, candidate, 0.75) == pytest.approx(np.array(expected), rel=1e-6)
