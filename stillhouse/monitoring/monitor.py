"""What a step tells of itself while it works; this one keeps it to itself, and others listen."""

from __future__ import annotations

from collections.abc import Mapping

TRAINING = "training"
"""The work of a training loop. Its units are steps; its examples are told by `trained`."""


class Monitor:
    """Hears of progress and of training, and does nothing with it. What listens must be quick and must not raise."""

    def began(self, work: str, total: int | None, done: int) -> None:
        """A piece of work begins: `done` of `total` units are done already; None = nobody knows how many there are."""

    def advanced(self, work: str, units: int) -> None:
        """So many more units of it are done."""

    def ended(self, work: str) -> None:
        """It is over."""

    def trained(self, loss: float, gradient_norm: float, learning_rate: float, examples: int) -> None:
        """An optimiser step's figures, told before anybody looks at them: they may not be finite."""

    def measured(self, heldout_loss: float, signals: Mapping[str, float]) -> None:
        """A training's held-out loss and signals."""


SILENT = Monitor()
