"""Batches depend only on the step."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stillhouse.core.errors import InputError
from stillhouse.training.batches import (
    LENGTHS_ALIKE,
    cheapest_parts,
    epoch_batches,
    length_buckets,
    length_parts,
    steps_for,
)

sizes = st.integers(1, 40)


@given(count=sizes, size=sizes, seed=st.integers(0, 99))
def test_every_epoch_sees_every_example_once(count: int, size: int, seed: int) -> None:
    batch = epoch_batches(count, size, seed)
    seen = np.concatenate([batch(step) for step in range(2 * count)])
    for epoch in range(len(seen) // count):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(count=st.integers(30, 90), seed=st.integers(0, 99))
def test_every_epoch_has_an_order_of_its_own_and_a_seed_always_the_same(count: int, seed: int) -> None:
    """Two random orders of 30 examples are equal with a probability of 1 in 10^32."""

    def orders(seed: int) -> list[list[int]]:
        batch = epoch_batches(count, count, seed)
        return [batch(epoch).tolist() for epoch in range(5)]

    found, other = orders(seed), orders(seed + 1)
    assert len({tuple(order) for order in [*found, *other, list(range(count))]}) == 11
    assert found == orders(seed)


@settings(max_examples=40)
@given(count=sizes, size=sizes, steps=st.lists(st.integers(0, 60), min_size=1, max_size=5))
def test_a_step_s_batch_does_not_depend_on_the_steps_before(count: int, size: int, steps: list[int]) -> None:
    in_order, jumping = epoch_batches(count, size, 1), epoch_batches(count, size, 1)
    ordered = [in_order(step) for step in range(61)]
    for step in steps:
        assert np.array_equal(jumping(step), ordered[step])


def test_steps() -> None:
    cases = {(100, 10, 3.0, None): 30, (100, 10, 3.0, 5): 5, (5, 10, 2.0, None): 2, (100, 32, 0.001, None): 1}
    cases |= {(5, 10, None, 900): 900}
    assert {case: steps_for(*case) for case in cases} == cases
    with pytest.raises(InputError, match="epochs and max_steps are both null"):
        steps_for(5, 10, None, None)


@settings(max_examples=40)
@given(
    count=sizes, size=sizes, steps=st.integers(1, 30), window=st.integers(1, 9), lengths=st.lists(sizes, min_size=40)
)
def test_buckets_deal_the_same_examples_by_length(
    count: int, size: int, steps: int, window: int, lengths: list[int]
) -> None:
    plain, length_N = epoch_batches(count, size, 7), np.array(lengths)
    dealt = length_buckets(plain, length_N, steps, window, 7)
    for start in range(0, steps, window):
        inside = range(start, min(start + window, steps))
        before = [plain(step) for step in inside]
        after = [dealt(step) for step in inside]
        assert sorted(np.concatenate(before)) == sorted(np.concatenate(after))
        spans = sorted((length_N[part].min(), length_N[part].max()) for part in after)
        assert all(longest <= shortest for (_, longest), (shortest, _) in itertools.pairwise(spans))
    jumping = length_buckets(epoch_batches(count, size, 7), length_N, steps, window, 7)
    for step in reversed(range(steps)):
        np.testing.assert_array_equal(jumping(step), dealt(step))


@pytest.mark.parametrize(("size", "expected"), [(10, [7]), (7, [7]), (6, [4, 3]), (3, [3, 2, 2]), (1, [1] * 7)])
def test_length_parts_hold_every_text_once_grouped_by_length(size: int, expected: list[int]) -> None:
    lengths = np.array([3, 9, 1, 9, 4, 2, 7])
    parts = length_parts(lengths, size)
    assert [len(part) for part in parts] == expected
    assert sorted(np.concatenate(parts)) == list(range(7))
    if len(parts) == 1:
        assert parts[0].tolist() == list(range(7))
    assert all(lengths[one].min() >= lengths[two].max() for one, two in itertools.pairwise(parts))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(0, 200))
def test_cheapest_parts_cost_what_the_best_of_all_partitions_costs(lengths: list[int], part_cost: int) -> None:
    length_N = np.array(lengths)
    parts = cheapest_parts(length_N, part_cost)
    assert sorted(np.concatenate(parts)) == list(range(len(lengths)))
    assert len(parts) > 1 or parts[0].tolist() == list(range(len(lengths)))
    falling = sorted(lengths, reverse=True)
    cuts = [n for n in range(1, len(falling)) if -(-falling[n] // LENGTHS_ALIKE) != -(-falling[n - 1] // LENGTHS_ALIKE)]
    costs = []
    for count in range(len(cuts) + 1):
        for chosen in itertools.combinations(cuts, count):
            ends = [*chosen, len(falling)]
            costs.append(sum((end - start) * falling[start] + part_cost for start, end in zip([0, *chosen], ends)))
    assert sum(len(part) * length_N[part].max() + part_cost for part in parts) == min(costs)
    assert all(length_N[one].min() > length_N[two].max() for one, two in itertools.pairwise(parts))


def test_buckets_come_in_random_order_and_save_padding() -> None:
    lengths = np.random.default_rng(0).integers(10, 150, size=6400)
    plain = epoch_batches(6400, 64, 1)
    dealt = length_buckets(plain, lengths, 100, 50, 1)
    longest = [int(lengths[dealt(step)].max()) for step in range(100)]
    for window in (longest[:50], longest[50:]):
        # For a random order, Spearman's rho has a standard deviation of 1 / 7.
        assert abs(stats.spearmanr(window, range(50)).statistic) < 5 / 7
    padded = sum(64 * size for size in longest)
    assert padded < 1.05 * lengths.sum() < 0.6 * 6400 * 149
