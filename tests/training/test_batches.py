"""Batches are a function of the step alone."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.training.batches import chunks, epoch_batches, length_buckets, steps_for

sizes = st.integers(1, 40)


@given(count=sizes, size=sizes, seed=st.integers(0, 99))
def test_every_epoch_sees_every_example_once(count: int, size: int, seed: int) -> None:
    batch = epoch_batches(count, size, seed)
    seen = np.concatenate([batch(step) for step in range(2 * count)])
    for epoch in range(len(seen) // count):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(count=sizes, size=sizes, steps=st.lists(st.integers(0, 60), min_size=1, max_size=5))
def test_a_step_has_the_same_batch_whenever_it_is_asked_for(count: int, size: int, steps: list[int]) -> None:
    in_order, jumping = epoch_batches(count, size, 1), epoch_batches(count, size, 1)
    ordered = [in_order(step) for step in range(61)]
    for step in steps:
        assert np.array_equal(jumping(step), ordered[step])


def test_steps() -> None:
    cases = {(100, 10, 3.0, 0): 30, (100, 10, 3.0, 5): 5, (5, 10, 2.0, 0): 2, (100, 32, 0.001, 0): 1}
    assert {case: steps_for(*case) for case in cases} == cases


def test_chunks_cover_everything_in_order() -> None:
    assert [list(part) for part in chunks(5, 2)] == [[0, 1], [2, 3], [4]]


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


def test_buckets_come_in_random_order_and_save_padding() -> None:
    lengths = np.random.default_rng(0).integers(10, 150, size=6400)
    plain = epoch_batches(6400, 64, 1)
    dealt = length_buckets(plain, lengths, 100, 50, 1)
    longest = [int(lengths[dealt(step)].max()) for step in range(100)]
    assert longest != sorted(longest)
    padded = sum(64 * size for size in longest)
    assert padded < 1.05 * lengths.sum() < 0.6 * 6400 * 149
