"""The progress and the gain of a trial so far, from the held-out measurements of its trainings.

A training measures itself on a subset of the dev questions that depends on its length, so its figure is compared with
its own start on the same questions. These gains add up over the trainings of a trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stillhouse.curves import DEV, CurveRow
from stillhouse.monitoring.monitor import TRAINING, Monitor

Report = Callable[[float, float], None]
"""`report(part, gain)`: the part of the trial's training that is done, 0 to 1, and the gain in the dev figure so far.

It may raise an exception to end the trial.
"""


class TrialCurve:
    """Joins the curves of a trial's trainings and reports each point once."""

    def __init__(self, trainings: Sequence[str], report: Report) -> None:
        self._trainings, self._report = list(trainings), report
        self._gained: dict[str, float] = {}
        self._reported = -1.0
        self._far: dict[str, tuple[int, int]] = {}

    def begin(self, training: str, steps: int, done: int) -> None:
        """A training of `steps` steps begins; an earlier run did `done` of them."""
        self._far[training] = done, steps

    def advance(self, training: str, steps: int) -> None:
        """`steps` more steps are done."""
        done, total = self._far.get(training, (0, 0))
        self._far[training] = done + steps, total

    def how_far(self) -> str:
        """The progress of the current training, for the log."""
        if not self._far:
            return "preparing to train"
        training, (done, total) = list(self._far.items())[-1]
        return f"{training}: {done} of {total} steps"

    def follow(self, training: str, rows: Sequence[CurveRow], steps: int) -> None:
        """Record a training's curve so far. A training that does not rank dev questions is ignored."""
        signal = next((name for name in rows[0].signals if name.startswith(DEV)), "")
        if not signal:
            return
        place = self._trainings.index(training)
        before = sum(self._gained.get(name, 0.0) for name in self._trainings[:place])
        gains = [row.signals[signal] - rows[0].signals[signal] for row in rows]
        self._gained[training] = max(gains)
        for row, gain in list(zip(rows, gains))[1:]:
            part = (place + row.step / steps) / len(self._trainings)
            if part > self._reported:
                self._reported = part
                self._report(part, before + gain)


class CurveMonitor(Monitor):
    """Forwards to a step's own monitor and reports its training curve to a trial."""

    def __init__(self, inner: Monitor, curve: TrialCurve, training: str) -> None:
        self._inner, self._curve, self._training = inner, curve, training

    def began(self, work: str, total: int | None, done: int) -> None:
        self._inner.began(work, total, done)
        if work == TRAINING:
            self._curve.begin(self._training, total or 0, done)

    def advanced(self, work: str, units: int) -> None:
        self._inner.advanced(work, units)
        if work == TRAINING:
            self._curve.advance(self._training, units)

    def ended(self, work: str) -> None:
        self._inner.ended(work)

    def trained(self, loss: float, gradient_norm: float, learning_rate: float, examples: int) -> None:
        self._inner.trained(loss, gradient_norm, learning_rate, examples)

    def measured(self, heldout_loss: float, signals: Mapping[str, float]) -> None:
        self._inner.measured(heldout_loss, signals)

    def curve(self, rows: Sequence[CurveRow], steps: int) -> None:
        self._inner.curve(rows, steps)
        self._curve.follow(self._training, rows, steps)


def written_rows(folder: Path) -> list[CurveRow]:
    """The curve of a finished training, with the ranking of dev questions if there is one."""
    from stillhouse.evaluation.report.curves import ranking_of, read_curves

    table = read_curves(folder)
    signal = ranking_of(table)
    return [
        CurveRow(int(row["step"]), row["train_loss"], row["heldout_loss"], {signal: row[signal]} if signal else {})
        for row in table.to_dict("records")
    ]
