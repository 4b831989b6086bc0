"""How often a training measures and on how many queries: measuring reads at most a share of what training reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from stillhouse.core.context import Context
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

    def heldout_loss() -> float:
        measured.append(True)
        return 1.0

    def loss(step: int) -> torch.Tensor:
        return (model.weight**2).sum()

    config = TrainingConfig(precision="fp32", eval_steps=made.every)
    train(model, loss, heldout_loss, steps, config, Context(tmp_path, "cpu", quiet=True))
    assert len(measured) == made.count(steps) <= 11
