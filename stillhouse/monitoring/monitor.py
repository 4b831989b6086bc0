"""What a step reports while it works; this monitor ignores it, others pass it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stillhouse.curves import CurveRow

TRAINING = "training"
"""The work of a training loop. Its units are steps; its examples are counted by `trained`."""


class Monitor:
    """Hears of progress and of training, and does nothing with it.

    What listens must be quick and, but for `curve`, must not raise.
    """

    def began(self, work: str, total: int | None, done: int) -> None:
        """A piece of work begins: `done` of `total` units are done already; None = nobody knows how many there are."""

    def advanced(self, work: str, units: int) -> None:
        """So many more units of it are done."""

    def ended(self, work: str) -> None:
        """It is over."""

    def trained(self, loss: float, gradient_norm: float, learning_rate: float, examples: int) -> None:
        """An optimiser step's figures, reported before anybody looks at them: they may not be finite."""

    def measured(self, heldout_loss: float, signals: Mapping[str, float]) -> None:
        """A training's held-out loss and signals."""

    def curve(self, rows: Sequence[CurveRow], steps: int) -> None:
        """The curve of a training of this many steps as far as it goes: at its beginning, then after each measurement.

        The first row is of the start. This alone may raise, to end the training; its last checkpoint stays.
        """


SILENT = Monitor()
