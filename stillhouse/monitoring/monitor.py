"""The reports of a running step. This monitor ignores them; others pass them on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stillhouse.curves import CurveRow

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

        The first row is the start. Only this method may raise, to end the training; its last checkpoint stays.
        """


SILENT = Monitor()
