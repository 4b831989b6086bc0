"""Masks: rates, nesting, whole words, and positions that are never drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.pretraining.corruption import (
    hidden_from,
    importance_mask,
    nested_mask,
    replace_80_10_10,
    token_mask,
    word_mask,
)


def passages(seed: int, rows: int = 64, length: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Random eligible positions (a first token, a last token and padding are not) and random word starts."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, length - 1, size=(rows, 1))
    position = np.arange(length)[None]
    eligible = (position >= 1) & (position <= sizes)
    starts = (rng.random((rows, length)) < 0.6) & eligible
    starts[:, 1] = True
    return eligible, starts


RATES = st.floats(0.05, 0.9)


@settings(deadline=None)
@given(seed=st.integers(0, 1000), rate=RATES)
def test_token_mask_draws_the_rounded_share(seed: int, rate: float) -> None:
    eligible, _ = passages(seed)
    mask = token_mask(eligible, rate, np.random.default_rng(seed))
    assert not (mask & ~eligible).any()
    np.testing.assert_array_equal(mask.sum(1), np.maximum(1, np.rint(eligible.sum(1) * rate)))


def test_token_mask_draws_every_position_equally_often() -> None:
    eligible = np.ones((20000, 10), dtype=bool)
    mask = token_mask(eligible, 0.3, np.random.default_rng(0))
    np.testing.assert_allclose(mask.mean(0), 0.3, atol=0.015)


@settings(deadline=None)
@given(seed=st.integers(0, 1000), rate=RATES)
def test_word_mask_equals_filling_word_by_word(seed: int, rate: float) -> None:
    """The slow version walks the words in the order of the same random keys."""
    eligible, starts = passages(seed, rows=8, length=30)
    mask = word_mask(eligible, starts, rate, np.random.default_rng(seed))
    words = [np.split(np.flatnonzero(e), np.flatnonzero(s[np.flatnonzero(e)])[1:]) for e, s in zip(eligible, starts)]
    keys = np.random.default_rng(seed).random((len(words), max(map(len, words))), dtype=np.float32)
    for row, (row_words, row_keys) in enumerate(zip(words, keys)):
        budget = max(1, round(int(eligible[row].sum()) * rate))
        order = sorted(range(len(row_words)), key=lambda word: row_keys[word])
        drawn: list[int] = []
        for word in order:
            if len(drawn) + len(row_words[word]) <= budget:
                drawn += row_words[word].tolist()
        if not drawn:
            drawn = row_words[order[0]].tolist()
        assert sorted(drawn) == np.flatnonzero(mask[row]).tolist()


@pytest.mark.parametrize("unit", ["token", "word"])
def test_nested_mask_holds_the_inner_one_and_has_the_expected_rate(unit: str) -> None:
    rng = np.random.default_rng(3)
    eligible = np.zeros((3000, 102), dtype=bool)
    eligible[:, 1:-1] = True
    starts = rng.random(eligible.shape) < 0.7

    def draw(rate: float) -> np.ndarray:
        return token_mask(eligible, rate, rng) if unit == "token" else word_mask(eligible, starts, rate, rng)

    inner = draw(0.3)
    outer = nested_mask(inner, 0.3, 0.5, draw)
    assert (inner <= outer).all()
    assert inner[:, 1:-1].mean() == pytest.approx(0.3, abs=0.005)
    assert outer[:, 1:-1].mean() == pytest.approx(0.5, abs=0.01)
    assert not outer[:, [0, -1]].any()


# 0.7 * 5 = 3.5 tells the floor from rounding, and 0.3 * 5 = 1.5 too; 0.5 * 5 = 2.5 does not, as it is rounded to 2.
@pytest.mark.parametrize(
    ("rate", "taken"), [(0.1, [3]), (0.3, [3]), (0.5, [3, 5]), (0.7, [1, 3, 5]), (0.9, [1, 3, 4, 5])]
)
def test_importance_mask_without_noise_takes_the_most_important(rate: float, taken: list[int]) -> None:
    """floor(5 * rate) tokens, at least one, and never the special ones of importance 99."""
    eligible = np.array([[False, True, True, True, True, True, False]])
    importance = np.array([[99, 3, 1, 5, 2, 4, 99]], dtype=np.float32)
    mask = importance_mask(eligible, importance, rate, 0.0, np.random.default_rng(0))
    np.testing.assert_array_equal(np.flatnonzero(mask[0]), taken)


@settings(deadline=None)
@given(seed=st.integers(0, 1000), rate=RATES)
def test_importance_mask_draws_the_floor(seed: int, rate: float) -> None:
    eligible, _ = passages(seed)
    importance = np.random.default_rng(seed).standard_normal(eligible.shape).astype(np.float32)
    mask = importance_mask(eligible, importance, rate, 1.0, np.random.default_rng(seed))
    assert not (mask & ~eligible).any()
    expected = [max(1, math.floor(int(count) * rate)) for count in eligible.sum(1)]
    np.testing.assert_array_equal(mask.sum(1), expected)


def test_importance_mask_with_noise_prefers_the_important() -> None:
    eligible = np.ones((20000, 4), dtype=bool)
    importance = np.tile(np.array([0, 1, 0, 0], dtype=np.float32), (20000, 1))
    mask = importance_mask(eligible, importance, 0.25, 1.0, np.random.default_rng(0))
    assert (mask.sum(1) == 1).all()
    # P(the largest of N(1,1) and three N(0,1) is the first), by numerical integration of phi(x - 1) Phi(x)^3.
    grid = np.linspace(-8, 9, 20001)
    density = np.exp(-((grid - 1) ** 2) / 2) / np.sqrt(2 * np.pi)
    below = np.cumsum(np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)) * (grid[1] - grid[0])
    expected = (density * below**3).sum() * (grid[1] - grid[0])
    assert mask[:, 1].mean() == pytest.approx(expected, abs=0.015)


def test_a_passage_without_tokens_has_an_empty_mask_and_one_token_is_always_drawn() -> None:
    eligible = np.array([[False, False, False], [False, True, False]])
    starts = eligible.copy()
    rng = np.random.default_rng(0)
    for mask in (
        token_mask(eligible, 0.1, rng),
        word_mask(eligible, starts, 0.1, rng),
        importance_mask(eligible, np.zeros((2, 3), np.float32), 0.1, 1.0, rng),
    ):
        np.testing.assert_array_equal(mask, eligible)


def test_replacement_has_the_stated_shares_and_touches_nothing_else() -> None:
    rng = np.random.default_rng(1)
    ids = rng.integers(10, 1000, size=(400, 100))
    mask = rng.random(ids.shape) < 0.4
    replaced = replace_80_10_10(ids, mask, 4, np.arange(10, 1000), rng)
    np.testing.assert_array_equal(replaced[~mask], ids[~mask])
    assert (replaced[mask] == 4).mean() == pytest.approx(0.8, abs=0.01)
    assert (replaced[mask] == ids[mask]).mean() == pytest.approx(0.1, abs=0.01)
    assert set(np.unique(replaced)) <= {4, *range(10, 1000)}


def test_hidden_tokens_have_the_stated_rate_and_never_spare_a_positions_own() -> None:
    """Each pair is hidden independently, so the number is binomial: within five deviations of its expectation."""
    rng = np.random.default_rng(0)
    eligible, _ = passages(2, rows=40, length=50)
    rate = 0.4
    hidden = hidden_from(eligible, rate, rng)
    assert hidden.shape == (40, 50, 50)
    own = np.eye(50, dtype=bool)[None]
    assert hidden[np.broadcast_to(own, hidden.shape)].all()
    others = ~own & eligible[:, None, :]
    assert not hidden[~own & ~eligible[:, None, :]].any(), "special tokens are seen from everywhere"
    pairs = 49 * eligible.sum()
    deviation = np.sqrt(pairs * rate * (1 - rate))
    assert (hidden & others).sum() == pytest.approx(pairs * rate, abs=5 * deviation)
