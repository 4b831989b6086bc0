"""How often a training measures and on how many queries: measuring reads at most a share of what training reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from stillhouse.context import Context
from stillhouse.training.loop import train
from stillhouse.training.measurements import Measurements, within
from stillhouse.training.settings import TrainingConfig


@given(
    share=st.floats(0.01, 0.5),
    steps=st.integers(1, 3000),
    trained=st.integers(1, 10**7),
    queries=st.integers(1, 800),
    each=st.integers(1, 300),
    shared=st.integers(1, 20_000),
)
def test_measurements_stay_within_their_share_and_leave_no_room(
    share: float, steps: int, trained: int, queries: int, each: int, shared: int
) -> None:
    def reads(count: int) -> int:
        return count + min(count * each, shared)

    made = within(share, trained, steps, queries, reads)
    allowed = share * trained
    assert 1 <= made.queries <= queries
    assert made.count(steps) * reads(made.queries) <= allowed or made.queries == 1
    if made.queries < queries:  # one more query is too many, and measurements are as few as allowed
        assert made.count(steps) * reads(made.queries + 1) > allowed
        assert made.count(steps) <= (6 if made.queries > 100 else 2) or made.count(steps) * reads(100) <= allowed
    else:
        assert made.count(steps) <= 11


def test_measuring_a_reranker_stays_within_its_share_of_the_training() -> None:
    """31 measurements read 221,000 pairs while training read 34,000: now they may read at most 34,000 x 3 / 10.

    Five measurements after the start leave room for 53 queries, which are too few to choose by; two leave room for 106.
    """
    made = within(0.1, 2 * 3 * 531 * 64, 531, 111, lambda queries: 64 * queries)
    assert made == Measurements(every=266, queries=106)
    assert made.count(531) * 64 * 106 == 3 * 6784 == 20_352 <= 2 * 34_000 * 3 / 10


@pytest.mark.parametrize(
    ("queries", "expected"),
    [
        (10, Measurements(10, 10)),  # 11 x 10 of 120
        (12, Measurements(12, 12)),  # 10 x 12 of 120: nine measurements after the start
        (20, Measurements(20, 20)),  # 6 x 20 of 120
        (21, Measurements(25, 21)),  # 5 x 21 of 120: 21 are fewer than 100, so a measurement goes
        (200, Measurements(100, 60)),  # 2 x 60 of 120: at the start and at the end
    ],
)
def test_the_number_of_measurements_takes_priority_over_queries(queries: int, expected: Measurements) -> None:
    assert within(0.1, 1200, 100, queries, lambda count: count) == expected


@pytest.mark.parametrize("steps", [1, 4, 5, 7, 10, 11, 19, 20, 99])
def test_a_training_makes_exactly_the_counted_measurements(tmp_path: Path, steps: int) -> None:
    made = within(1.0, 1e9, steps, 1, lambda count: count)
    model, measured = nn.Linear(1, 1), []

    def heldout_loss() -> float:
        measured.append(True)
        return 1.0

    def loss(step: int) -> torch.Tensor:
        return (model.weight**2).sum()

    config = TrainingConfig(precision="fp32", eval_steps=made.every)
    train(model, loss, heldout_loss, steps, config, Context(tmp_path, "cpu", quiet=True))
    assert len(measured) == made.count(steps) <= 11
