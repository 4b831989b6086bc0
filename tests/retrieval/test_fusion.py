"""Fusion of scores: weights compared with a slow optimiser, ranks with a table computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from stillhouse.retrieval.search.fusion import RIDGE, convex_combination, fit_weights, fuse, reciprocal_ranks


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


def test_an_anticorrelated_score_gets_no_weight() -> None:
    scores_QKF, candidate_QK, positive_QK = made(1)
    scores_QKF[:, :, 1] = np.random.default_rng(5).normal(size=positive_QK.shape) - 2.0 * positive_QK
    assert fit_weights(scores_QKF, candidate_QK, positive_QK)[1] == 0


def test_weights_adapt_to_the_scale_of_a_score() -> None:
    """A score in other units gives the same ranking."""
    scores_QKF, candidate_QK, positive_QK = made(2)
    one_F = fit_weights(scores_QKF, candidate_QK, positive_QK)
    other_F = fit_weights(scores_QKF * [1000.0, 0.01], candidate_QK, positive_QK)
    assert other_F * [1000.0, 0.01] == pytest.approx(one_F, rel=1e-3, abs=1e-4)


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


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_fused_scores_are_the_weighted_sum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores_QKF, weights_F = rng.normal(size=(3, 4, 2)), rng.random(2)
    slow = [[sum(w * s for w, s in zip(weights_F, scores_F)) for scores_F in scores_KF] for scores_KF in scores_QKF]
    assert fuse(scores_QKF, weights_F) == pytest.approx(np.array(slow), rel=1e-5, abs=1e-6)


def test_reciprocal_ranks_by_hand() -> None:
    ranks_QKF = np.array([[[1, 2], [2, 0], [0, 1], [0, 0]]])
    expected = [[1 / 61 + 1 / 62, 1 / 62, 1 / 61, 0.0]]
    assert reciprocal_ranks(ranks_QKF) == pytest.approx(np.array(expected), rel=1e-6)


def test_a_convex_combination_by_hand() -> None:
    """Dense scores of 0.2 to 0.6 and BM25 scores of 0 to 8 are scaled to 0 to 1. Equal scores all become 0."""
    bm25 = np.array([[8.0, 2.0, 0.0, 99.0], [0.0, 0.0, 0.0, 0.0]])
    dense = np.array([[0.2, 0.6, 0.5, 99.0], [0.4, 0.4, 0.4, 0.4]])
    candidate = np.array([[True, True, True, False], [True, True, True, True]])
    expected = [[0.25, 0.75 + 0.25 * 0.25, 0.75 * 0.75, 0.0], [0.0, 0.0, 0.0, 0.0]]
    assert convex_combination(bm25, dense, candidate, 0.75) == pytest.approx(np.array(expected), rel=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.floats(0.1, 100.0), st.floats(-5.0, 5.0))
def test_a_convex_combination_ignores_the_scale_of_its_scores(seed: int, factor: float, shift: float) -> None:
    rng = np.random.default_rng(seed)
    bm25, dense = rng.random((3, 5)), rng.normal(size=(3, 5))
    all_of_them = np.ones((3, 5), dtype=np.bool_)
    scaled = convex_combination(factor * bm25, factor * dense + shift, all_of_them, 0.7)
    assert scaled == pytest.approx(convex_combination(bm25, dense, all_of_them, 0.7), abs=1e-4)
