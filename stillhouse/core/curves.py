"""Training curves: held-out losses and signals over steps, the best row, and when to stop."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

HELDOUT_LOSS = "heldout_loss"
DEV = "dev_"
"""The prefix of signals that measure how the candidates of dev queries are ranked."""
TEACHER = "teacher.json"
"""Beside the curves of a training with a teacher: how the teacher was chosen, and what the training did with it."""
TAUGHT, IGNORED, SKIPPED = "taught", "ignored", "skipped"
"""How a training used its teacher: it learned from it, trained without it, or kept its encoder unchanged."""


@dataclass(frozen=True)
class CurveRow:
    """One point of the curves: losses after `step` steps. `train_loss` is the mean since the previous row.

    `signals` maps names to other measures at that step. Lower is better if the name ends in "loss", else higher is.
    `intervals` are the 95 % intervals of the held-out loss and of signals, by name, where they are known.
    """

    step: int
    train_loss: float
    heldout_loss: float
    signals: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def badness(self, name: str) -> float:
        """The value of "heldout_loss" or a signal, negated if needed so that lower is better."""
        value = self.heldout_loss if name == HELDOUT_LOSS else self.signals[name]
        return value if name.endswith("loss") else -value


@dataclass(frozen=True)
class Watch:
    """What a training measures besides its held-out loss, and which measure selects the parameters to keep.

    `measure()` returns the signals, in evaluation mode without gradients: the value of each, or its values for each
    question, whose mean and interval are kept. The parameters with the best `metric` are kept. With `patience`,
    training stops after this many consecutive rows without an improvement.
    """

    measure: Callable[[], Mapping[str, float | pd.Series]] = dict
    metric: str = HELDOUT_LOSS
    patience: int | None = None


def best_row(rows: list[CurveRow], metric: str = HELDOUT_LOSS) -> CurveRow:
    """The row whose parameters `train` kept: the best by `metric`, and the last one in a tie.

    Dev measures over few queries often tie. The lowest held-out loss, which shows finer differences, then decides, and
    after it the earliest row: a training that improves neither keeps its initial model.
    """
    if not metric.startswith(DEV):
        return min(reversed(rows), key=lambda row: row.badness(metric))
    return min(rows, key=lambda row: (row.badness(metric), row.heldout_loss))


def stopped(rows: list[CurveRow], watch: Watch) -> bool:
    """Whether none of the last `patience` rows is better than the rows before them."""
    if not watch.patience or len(rows) <= watch.patience:
        return False
    before = min(row.badness(watch.metric) for row in rows[: -watch.patience])
    return all(row.badness(watch.metric) >= before for row in rows[-watch.patience :])


def describe(rows: list[CurveRow], metric: str = HELDOUT_LOSS) -> str:
    """A line for the log."""
    best = best_row(rows, metric)
    changes = [f"held-out loss {rows[0].heldout_loss:.3f} to {best.heldout_loss:.3f}"]
    changes += [f"{name} {value:.3f} to {best.signals[name]:.3f}" for name, value in rows[0].signals.items()]
    line = f"{rows[-1].step} steps, {', '.join(changes)} (step {best.step})"
    if not metric.startswith(DEV) or best is not rows[0]:
        return line
    return f"{line}; no step was better than the initial model, which is kept"


def metrics_of(rows: list[CurveRow], metric: str = HELDOUT_LOSS) -> dict[str, float]:
    """The held-out loss and the signals of the initial model, as `NAME_start`, and of the row that is kept."""
    first, best = rows[0], best_row(rows, metric)
    metrics = {f"{HELDOUT_LOSS}_start": first.heldout_loss, HELDOUT_LOSS: best.heldout_loss}
    for name, value in first.signals.items():
        metrics |= {f"{name}_start": value, name: best.signals[name]}
    return metrics


def intervals_of(rows: list[CurveRow], metric: str = HELDOUT_LOSS) -> dict[str, tuple[float, float]]:
    """The known 95 % intervals of `metrics_of`, by the same names."""
    first, best = rows[0], best_row(rows, metric)
    return {f"{name}_start": bounds for name, bounds in first.intervals.items()} | dict(best.intervals)


def write_curves(folder: Path, rows: list[CurveRow], metric: str = HELDOUT_LOSS) -> None:
    """Writes `curves.csv`, in the form that `dvc plots` and the report read, and `signals.csv` if there are signals.

    `kept` is 1 in the row whose parameters were kept, the best by `metric`, and 0 in the others.
    """
    best = best_row(rows, metric) if rows else None
    losses = ([row.step, f"{row.train_loss:.6f}", f"{row.heldout_loss:.6f}", int(row is best)] for row in rows)
    write_csv(folder / "curves.csv", ["step", "train_loss", "heldout_loss", "kept"], losses)
    signals = [[row.step, name, f"{value:.6f}"] for row in rows for name, value in row.signals.items()]
    if signals:
        write_csv(folder / "signals.csv", ["step", "signal", "value"], signals)


def write_csv(path: Path, header: list[str], rows: Iterable[list[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
