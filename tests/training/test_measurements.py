"""How often a training measures and on how many queries: measuring reads at most a share of what training reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from stillhouse.core.context import Context
from stillhouse.core.curves import CurveRow, Watch
from stillhouse.training.intervals import interval_of, interval_of_batches
from stillhouse.training.loop import train
from stillhouse.training.measurements import within
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


@pytest.mark.parametrize("steps", [1, 4, 5, 7, 10, 11, 19, 20, 99])
def test_a_training_makes_exactly_the_counted_measurements(tmp_path: Path, steps: int) -> None:
    made = within(1.0, 1e9, steps, 1, lambda count: count)
    model, measured = nn.Linear(1, 1), []

    def heldout_losses() -> list[tuple[int, float]]:
        measured.append(True)
        return [(1, 1.0)]

    def loss(step: int) -> torch.Tensor:
        return (model.weight**2).sum()

    config = TrainingConfig(precision="fp32", eval_steps=made.every)
    train(model, loss, heldout_losses, steps, config, Context(tmp_path, "cpu", quiet=True))
    assert len(measured) == made.count(steps) <= 11


def test_intervals_hold_the_true_mean_as_often_as_they_say() -> None:
    """Of few batches with a shorter last one, and of a measure that is often 0 or 1; of two batches there is none."""
    assert interval_of_batches([(8, 1.0), (8, 2.0)]) is None
    rng, held = np.random.default_rng(5), {"batches": 0, "questions": 0}
    for _ in range(400):
        batches = [(size, float(rng.gamma(4, 0.5, size).mean())) for size in (8, 8, 8, 1)]
        values = pd.Series(rng.choice([0.0, 0.5, 1.0], 60, p=[0.2, 0.3, 0.5]))
        for name, (low, high), mean in (
            ("batches", interval_of_batches(batches) or (9.0, 0.0), 2.0),
            ("questions", interval_of(values), 0.65),
        ):
            held[name] += low <= mean <= high
    assert all(0.92 <= count / 400 <= 0.985 for count in held.values()), held


def test_the_interval_of_equal_batches_is_that_of_scipy() -> None:
    losses = [0.3, 0.8, 0.1, 0.9]
    expected = stats.ttest_1samp(losses, 0).confidence_interval(0.95)
    assert interval_of_batches([(7, loss) for loss in losses]) == pytest.approx(tuple(expected))


def test_a_training_keeps_the_intervals_of_what_it_measures(tmp_path: Path) -> None:
    """Also after a kill; a single batch has none."""
    model, counts = nn.Linear(1, 1), [1, 2, 2, 2, 2]
    ranks = pd.Series([1.0, 0.5, 0.0], index=["a", "b", "c"])

    def loss(step: int) -> torch.Tensor:
        if step == 3 and len(rows_of) == 0:
            raise KeyboardInterrupt
        return (model.weight**2).sum()

    def run(name: str = "killed") -> list[CurveRow]:
        (tmp_path / name).mkdir(exist_ok=True)
        batches = [(count, 1.0 + count) for count in counts]
        context = Context(tmp_path / name, "cpu", quiet=True)
        config = TrainingConfig(precision="fp32", eval_steps=2)
        return train(model, loss, lambda: batches, 4, config, context, Watch(lambda: {"dev_RR@10": ranks, "other": 2}))

    rows_of: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stillhouse.training.loop.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            run()
        rows_of.append(True)
        rows = run()
    for row in rows:
        assert row.heldout_loss == pytest.approx(26 / 9) and row.signals == {"dev_RR@10": 0.5, "other": 2}
        assert row.intervals == {
            "heldout_loss": interval_of_batches([(1, 2.0), *4 * [(2, 3.0)]]),
            "dev_RR@10": interval_of(ranks),
        }
    counts[:] = [5]
    assert "heldout_loss" not in run("single")[0].intervals
