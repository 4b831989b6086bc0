from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from stillhouse.evaluation.significance import bootstrap_intervals, compared_pairs, holm, sign_flip_p

PAPERS = ["bm25", "zero_shot", "retriever_1_unpretrained", "retriever_1", "retriever_2", "reranked", "distilled"]


def test_intervals_agree_with_scipys_bootstrap() -> None:
    rng = np.random.default_rng(0)
    values = np.stack([rng.random(80), rng.random(80) ** 4], axis=1)
    low, high = bootstrap_intervals(values, 8000, seed=3)
    for column in range(2):
        expected = stats.bootstrap(
            (values[:, column],), np.mean, n_resamples=8000, method="percentile", rng=np.random.default_rng(1)
        ).confidence_interval
        assert low[column] == pytest.approx(expected.low, abs=0.004)
        assert high[column] == pytest.approx(expected.high, abs=0.004)


@pytest.mark.parametrize(
    "differences", [[0.5, -0.2, 0.1, 0.7, 0.3, 0.0, 0.4], [0.1] * 6, [0.3, -0.3, 0.1, -0.1], [1, 1, 1, -1, 0.5, 0.5, 1]]
)
def test_sign_flips_agree_with_exact_enumeration(differences: list[float]) -> None:
    d = np.array(differences)
    sums = np.array([np.dot(signs, d) for signs in product((-1, 1), repeat=len(d))])
    exact = float(np.mean(np.abs(sums) >= abs(d.sum()) - 1e-12))
    assert sign_flip_p(d[:, None], 20000, seed=4)[0] == pytest.approx(exact, abs=0.012)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_the_step_down_procedure_rejects(p: list[float]) -> None:
    adjusted = holm(p)
    for alpha in (0.01, 0.05, 0.3):
        rejected: set[int] = set()
        for place, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
            if p[i] * (len(p) - place) > alpha:
                break
            rejected.add(i)
        assert {i for i in range(len(p)) if adjusted[i] <= alpha} == rejected


def test_every_stage_is_compared_with_the_one_before_and_pairs_are_not_repeated() -> None:
    """The pairs are written out, so that the tests of the papers' run cannot change by accident."""
    first, bare, one, two, ranked, last = PAPERS[1:]
    before = list(zip(PAPERS[1:], PAPERS))
    assert compared_pairs(PAPERS) == [*before, (last, "bm25"), (last, first), (last, one), (one, first)]
    assert before == [(first, "bm25"), (bare, first), (one, bare), (two, one), (ranked, two), (last, ranked)]
    assert compared_pairs(["bm25", "distilled"]) == [("distilled", "bm25")]
    assert compared_pairs(["distilled"]) == []


def test_sign_flips_without_a_difference_and_with_a_clear_one() -> None:
    clear = np.stack([np.zeros(40), np.full(40, 0.1)], axis=1)
    assert sign_flip_p(clear, 999, seed=0).tolist() == [1.0, 0.001]
