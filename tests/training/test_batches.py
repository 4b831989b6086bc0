"""Batches are a function of the step alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.training.batches import chunks, epoch_batches, steps_for

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
