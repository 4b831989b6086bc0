"""The likelihood of right answers, compared with written-out sums and used to choose a winner."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.search.hybrid import Fusion
from stillhouse.search.winner import Contender, choose_winner, common_candidates, log_likelihoods


def drawn(seed: int, queries: int = 40, candidates: int = 9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores, which of them are judged and which are right. Right answers usually score higher."""
    rng = np.random.default_rng(seed)
    right = rng.random((queries, candidates)) < 0.2
    judged = right | (rng.random(right.shape) < 0.8)
    return (rng.normal(size=right.shape) + right).astype(np.float32), judged, right


def slow(scores: np.ndarray, judged: np.ndarray, right: np.ndarray, factor: float) -> list[float]:
    found = []
    for row in range(len(scores)):
        best = [factor * float(s) for s, r in zip(scores[row], right[row]) if r]
        wrong = [factor * float(s) for s, j, r in zip(scores[row], judged[row], right[row]) if j and not r]
        if best and wrong:
            odds = [math.exp(score) for score in (max(best), *wrong)]
            found.append(math.log(odds[0] / sum(odds)))
        else:
            found.append(0.0)
    return found


def test_the_likelihood_is_a_log_softmax_with_the_best_single_scale() -> None:
    scores, judged, right = drawn(1)
    found = log_likelihoods(scores, judged, right)
    # A single factor explains the values of all queries.
    factors = np.linspace(0.01, 5, 2000)
    nearest = min(factors, key=lambda factor: np.abs(np.array(slow(scores, judged, right, factor)) - found).max())
    np.testing.assert_allclose(found, slow(scores, judged, right, nearest), atol=0.01)
    means = [np.mean(slow(scores, judged, right, factor)) for factor in (nearest / 3, nearest, nearest * 3)]
    assert means[1] == max(means)


def test_uninformative_queries_have_a_likelihood_of_zero() -> None:
    scores, judged, right = drawn(3, queries=30)
    right[0], judged[1] = False, right[1]
    found = log_likelihoods(scores, judged, right)
    assert found[0] == found[1] == 0 and (found <= 0).all() and (found < 0).sum() > 20
    assert not log_likelihoods(scores, judged, np.zeros_like(right)).any()


@given(st.lists(st.lists(st.integers(-1, 20), min_size=4, max_size=4), min_size=1, max_size=5))
def test_candidates_are_those_of_all_and_the_right_answers(rows: list[list[int]]) -> None:
    brought = np.array(rows, dtype=np.int32)
    answers = np.array([[3, 21, -1]] * len(rows), dtype=np.int32)
    found = common_candidates([brought[:, :2], brought[:, 2:]], answers)
    for given_K, found_U in zip(rows, found):
        kept = [row for row in found_U if row >= 0]
        assert set(kept) == {row for row in given_K if row >= 0} | {3, 21} and len(set(kept)) == len(kept)
        assert list(found_U[len(kept) :]) == [-1] * (len(found_U) - len(kept))
    assert (found >= 0).any(axis=0).all()


def test_a_winner_is_chosen_by_what_is_asked_for() -> None:
    """One contender ranks one more query first, by a hair; the other is far ahead in likelihood on another query."""
    ranks, likely = np.array([[1.0, 1.0, 0.5], [1.0, 0.5, 0.5]]), np.log([[0.4, 0.5, 0.3], [0.9, 0.49, 0.3]])
    contenders = [Contender(name, Fusion(), *values) for name, *values in zip(("one", "other"), ranks, likely)]
    assert choose_winner(contenders, "rr10", 0.0).name == "one"
    assert choose_winner(contenders, "log_likelihood", 0.0).name == "other"
    assert choose_winner(contenders, "log_likelihood", 5.0).name == "one"
    assert choose_winner(contenders[::-1], "rr10", 0.0).name == "one"


def test_a_later_retriever_must_beat_every_form_of_the_first() -> None:
    """Though one form of the first has no lead over the other, the second retriever leads only one of them."""
    ranks = np.array([[0.1, 0.1, 0.1, 0.1], [1.0, 0.1, 0.1, 0.1], [0.6, 0.2, 0.2, 0.2]])
    names = (("one", Fusion()), ("one", Fusion("weights")), ("other", Fusion()))
    alone, fused, other = (Contender(*name, values, values) for name, values in zip(names, ranks))
    assert choose_winner([alone, fused], "rr10", 1.0) is alone
    assert choose_winner([alone, other], "rr10", 1.0) is other
    assert choose_winner([alone, fused, other], "rr10", 1.0) is alone
    single = [Contender(one.retriever, one.fusion, one.reciprocal_ranks[:1], ranks[0, :1]) for one in (alone, fused)]
    assert choose_winner(single, "rr10", 1.0) is single[0] and choose_winner(single, "rr10", 0.0) is single[1]
