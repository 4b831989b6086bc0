"""The reports of a running step. `Monitor` ignores them, `Tally` counts them, and others pass them on."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stillhouse.core.curves import CurveRow

TRAINING = "training"
"""The work of a training loop. Its units are steps; `trained` counts its examples."""


class Monitor:
    """Receives progress and training figures, and ignores them.

    Subclasses must be quick and, except in `curve`, must not raise.
    """

    def began(self, work: str, total: int | None, done: int) -> None:
        """A piece of work begins, with `done` of `total` units already done; None = the total is unknown."""

    def advanced(self, work: str, units: int) -> None:
        """`units` more of it are done."""

    def ended(self, work: str) -> None:
        """It is over."""

    def trained(self, loss: float, gradient_norm: float, learning_rate: float, examples: int) -> None:
        """An optimiser step's figures, reported before they are checked: they may not be finite."""

    def measured(self, heldout_loss: float, signals: Mapping[str, float]) -> None:
        """A training's held-out loss and signals."""

    def curve(self, rows: Sequence[CurveRow], steps: int) -> None:
        """The curve so far of a training of `steps` steps: at its beginning, then after each measurement.

        The first row is the initial model. Only this method may raise, to end the training; its last checkpoint stays.
        """


SILENT = Monitor()


class Tally(Monitor):
    """Counts examples and seconds by the name of the work, for the throughput in a step's results."""

    def __init__(self) -> None:
        self.examples: defaultdict[str, int] = defaultdict(int)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.begun: dict[str, float] = {}

    def began(self, work: str, total: int | None, done: int) -> None:
        self.begun[work] = time.monotonic()

    def advanced(self, work: str, units: int) -> None:
        if work != TRAINING:
            self.examples[work] += units

    def trained(self, loss: float, gradient_norm: float, learning_rate: float, examples: int) -> None:
        self.examples[TRAINING] += examples

    def ended(self, work: str) -> None:
        now = time.monotonic()
        self.seconds[work] += now - self.begun.pop(work, now)

    def throughput(self) -> dict[str, float]:
        """Examples per second of all finished work; a training's time includes its measurements."""
        return {work: self.examples[work] / seconds for work, seconds in self.seconds.items() if seconds > 0}
