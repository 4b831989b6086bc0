"""The training loop: the optimiser's arithmetic, the best parameters, and an exact resume."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stillhouse.core.context import Context
from stillhouse.core.curves import CurveRow, Watch, best_row, stopped, write_curves
from stillhouse.training.loop import learning_rate_factor, train
from stillhouse.training.settings import TrainingConfig

CONFIG = TrainingConfig(learning_rate=0.1, warmup_ratio=0.2, precision="fp32", eval_steps=3, weight_decay=0.01)
STEPS = 10


class Regression(nn.Module):
    """A linear layer with dropout, so that the random state matters."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 1)
        self.dropout = nn.Dropout(0.5)

    def loss(self, step: int) -> Tensor:
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        return ((self.linear(self.dropout(inputs)) - inputs.sum(1, keepdim=True)) ** 2).mean()


def run(
    folder: Path, stop_at: int | None = None, quiet: bool = True, began: list[int] | None = None
) -> tuple[Regression, list[CurveRow]]:
    """Train to the end, or to step `stop_at`, and append every trained step to `began`."""
    model = Regression()

    def batch_loss(step: int) -> Tensor:
        if step == stop_at:
            raise KeyboardInterrupt
        if began is not None:
            began.append(step)
        return model.loss(step)

    rows = train(model, batch_loss, lambda: [(1, model.loss(-1))], STEPS, CONFIG, Context(folder, "cpu", quiet=quiet))
    return model, rows


@pytest.fixture(autouse=True)
def checkpoints_after_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillhouse.training.loop.SECONDS_BETWEEN_CHECKPOINTS", 0.0)


@pytest.mark.parametrize("stop_at", [1, 4, 9])
def test_a_killed_run_reaches_the_same_parameters(tmp_path: Path, stop_at: int) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    expected, expected_rows = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", stop_at)
    assert len(list((tmp_path / "broken").glob("checkpoint-*.pt"))) == 1
    resumed, rows = run(tmp_path / "broken")
    for name, value in expected.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    # The training loss of the interrupted interval is still the mean of the same steps.
    assert [row.heldout_loss for row in rows] == [row.heldout_loss for row in expected_rows]
    assert [row.train_loss for row in rows] == [row.train_loss for row in expected_rows]


@pytest.mark.parametrize("damage", ["a bit", "a byte less", "empty"])
def test_a_damaged_checkpoint_is_named_and_never_used(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    expected, _ = run(tmp_path / "whole")
    chance = random.Random(damage)
    for _ in range(20):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "broken", 5)
        (path,) = (tmp_path / "broken").glob("checkpoint-5-*.pt")
        content = bytearray(path.read_bytes())
        if damage == "a bit":
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(b"" if damage == "empty" else content[:-1] if damage == "a byte less" else content)
        resumed, _ = run(tmp_path / "broken", quiet=False)
        assert f"{path} is damaged" in capsys.readouterr().err
        for name, value in expected.state_dict().items():
            assert torch.equal(resumed.state_dict()[name], value), name
        for left in (tmp_path / "broken").iterdir():
            left.unlink()


def test_the_parameters_of_the_lowest_heldout_loss_are_kept(tmp_path: Path) -> None:
    losses = iter([5.0, 3.0, 4.0, 6.0, 7.0])
    seen: list[Tensor] = []
    model = Regression()

    def heldout() -> list[tuple[int, float]]:
        seen.append(model.linear.weight.detach().clone())
        return [(1, next(losses))]

    rows = train(model, model.loss, heldout, STEPS, CONFIG, Context(tmp_path, "cpu", quiet=True))
    assert [row.step for row in rows] == [0, 3, 6, 9, 10] and best_row(rows).step == 3
    assert torch.equal(model.linear.weight, seen[1]) and not torch.equal(seen[1], seen[-1])


class TwoNumbers(nn.Module):
    """Two separate parameters, so that the norm over both differs from the norm of each."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (nn.Parameter(torch.tensor(value)) for value in (1.0, -2.0))

    def loss(self, step: int) -> Tensor:
        return (self.one**2 + 3 * self.two**2 + self.one * self.two) * (1 + 5 * (step % 3))


@pytest.mark.parametrize(("clip", "decay"), [(0.0, 0.0), (0.0, 0.3), (20.0, 0.0), (20.0, 0.3), (0.01, 0.3), (1e6, 0.0)])
def test_clipping_and_decay_written_out(tmp_path: Path, clip: float, decay: float) -> None:
    """The result equals AdamW in float64: clipping uses the joint norm, and decay depends on the parameter alone.

    The scale of the gradients changes from step to step, so 20 is above some norms and below others.
    """
    config = TrainingConfig(
        learning_rate=0.1, warmup_ratio=0.2, precision="fp32", eval_steps=STEPS, max_grad_norm=clip, weight_decay=decay
    )
    model = TwoNumbers()
    train(model, model.loss, lambda: [(1, -1.0)], STEPS, config, Context(tmp_path, "cpu", quiet=True))
    weights, first, second = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    scaled = []
    for step in range(STEPS):
        one, two = weights
        gradient = np.array([2 * one + two, 6 * two + one]) * (1 + 5 * (step % 3))
        norm = np.sqrt((gradient**2).sum())
        scaled.append(bool(clip and norm > clip))
        if scaled[-1]:
            gradient *= clip / norm
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        corrected = (first / (1 - 0.9 ** (step + 1))) / (np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8)
        rate = 0.1 * ((step + 1) / 2 if step < 2 else (STEPS - step) / (STEPS - 2))
        weights = weights * (1 - rate * decay) - rate * corrected
    assert any(scaled) == (clip in (20.0, 0.01)) and all(scaled) == (clip == 0.01)
    assert [model.one.item(), model.two.item()] == pytest.approx(weights, abs=1e-5)


def test_the_schedule_warms_up_and_decays_to_zero() -> None:
    factors = [learning_rate_factor(step, 10, 2) for step in range(11)]
    assert factors[:3] == [0.5, 1.0, 1.0] and factors[10] == 0.0
    assert factors[2:] == sorted(factors[2:], reverse=True)
    assert learning_rate_factor(0, 10, 0) == 1.0


def test_warmup_steps_and_last_step_keep_the_whole_schedule(tmp_path: Path) -> None:
    """Stopping early gives the same parameters as the whole schedule at that step.

    `warmup_steps` = n equals `warmup_ratio` = n / steps.
    """
    ways = {"steps": replace(CONFIG, warmup_steps=3), "fraction": replace(CONFIG, warmup_ratio=3 / STEPS)}
    ways["early"] = replace(CONFIG, warmup_steps=3, last_step=5)
    weights, rows = {}, {}
    for name, config in ways.items():
        model = Regression()
        kept: list[list[float]] = []

        def loss(step: int, model: Regression = model, kept: list[list[float]] = kept) -> Tensor:
            kept.append([float(parameter.detach().double().sum()) for parameter in model.parameters()])
            return model.loss(step)

        (tmp_path / name).mkdir()
        rows[name] = train(model, loss, lambda: [(1, 0.0)], STEPS, config, Context(tmp_path / name, "cpu", quiet=True))
        weights[name] = kept
    assert weights["steps"] == weights["fraction"] and len(weights["early"]) == 5
    assert weights["early"] == weights["steps"][:5] and rows["early"][-1].step == 5


def rows_of(*values: float) -> list[CurveRow]:
    return [CurveRow(step, 1.0, 1.0, {"hits": value}) for step, value in enumerate(values)]


STOPS = [
    ((0.1, 0.2, 0.3), 2, False),
    ((0.1, 0.3, 0.2), 2, False),
    ((0.3, 0.2, 0.3), 2, True),  # an equal value is not better
    ((0.1, 0.3, 0.2, 0.2), 2, True),
    ((0.1, 0.3, 0.2, 0.4), 2, False),
    ((0.3, 0.2, 0.2), 0, False),
    ((0.3, 0.2), 2, False),
]


@pytest.mark.parametrize(("values", "patience", "stop"), STOPS)
def test_when_a_signal_stops_a_training(values: tuple[float, ...], patience: int, stop: bool) -> None:
    assert stopped(rows_of(*values), Watch(metric="hits", patience=patience)) == stop


def test_the_parameters_of_the_best_signal_are_kept_and_the_run_stops(tmp_path: Path) -> None:
    signals = iter([{"hits": value} for value in (0.1, 0.5, 0.4, 0.3)])
    heldout = iter([5.0, 4.0, 3.0, 2.0])
    model, seen = Regression(), []

    def measure() -> dict[str, float]:
        seen.append(model.linear.weight.detach().clone())
        return next(signals)

    watch = Watch(measure, "hits", 2)
    context = Context(tmp_path, "cpu", quiet=True)
    rows = train(model, model.loss, lambda: [(1, next(heldout))], STEPS, CONFIG, context, watch)
    assert [row.step for row in rows] == [0, 3, 6, 9], "stopped one measurement before the end"
    assert best_row(rows, "hits").step == 3
    assert torch.equal(model.linear.weight, seen[1])
    write_curves(tmp_path, rows)
    assert (tmp_path / "signals.csv").read_text().splitlines()[:3] == [
        "step,signal,value",
        "0,hits,0.100000",
        "3,hits,0.500000",
    ]


@pytest.mark.parametrize("what", ["the loss is nan", "the gradient's norm is"])
def test_a_loss_or_gradient_that_is_not_finite_stops_the_run_and_names_what_is_needed(
    tmp_path: Path, what: str
) -> None:
    model = Regression()

    def batch_loss(step: int) -> Tensor:
        # The square root of 0 adds nothing to the loss but has an infinite gradient.
        spoilt = torch.tensor(torch.nan) if "loss" in what else (model.linear.weight * 0).abs().sum().sqrt()
        return model.loss(step) + (spoilt if step == 5 else 0)

    context, heldout = Context(tmp_path, "cpu", quiet=True), [(1, 1.0)]
    with pytest.raises(FloatingPointError, match=what) as caught:
        train(model, batch_loss, lambda: heldout, STEPS, CONFIG, context, examples=lambda step: np.arange(3) + step)
    message = str(caught.value)
    assert "at step 5" in message and "examples" in message and "after step 5" in message and "checkpoint-5-" in message
