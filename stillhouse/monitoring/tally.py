"""Counts a step's work and its duration, for the throughput in its results."""

from __future__ import annotations

import time
from collections import defaultdict

from stillhouse.monitoring.monitor import TRAINING, Monitor


class Tally(Monitor):
    """Counts examples and seconds by the name of the work."""

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
