"""How often a training measures itself and on how many held-out queries: a function of counts, never of a clock.

Held-out queries are read without a backward pass, so that a text that is trained on costs about three that are only
read. What all measurements read is held against what the training reads, and bounded by a share of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

READS_OF_TRAINING = 3
"""The texts that are read in the time in which one is trained on: a backward pass takes two forward passes."""
MOST, FEWEST = 10, 5
"""Measurements after the start. Fewer leave room for more queries, as long as there are enough to choose from."""
ENOUGH = 50
"""Queries below which moments are given up, down to the end alone, before more queries are: a few say nothing."""
SHARE = 0.1
"""The part of a training that its measurements take where a ranking chooses."""


@dataclass(frozen=True)
class Measurements:
    """A training is measured before its first step, then after every `every` steps and the last, on `queries` each."""

    every: int
    queries: int

    def count(self, steps: int) -> int:
        """How many measurements a training of this many steps has, that of its start included."""
        return 1 + -(-steps // self.every)


def within(share: float, trained: float, steps: int, queries: int, reads: Callable[[int], int]) -> Measurements:
    """The measurements of a training of `steps` steps whose texts are at most `share` of those that it reads.

    `trained` is what the training reads, in texts that are only read; `queries` is how many held-out ones there are,
    and `reads(n)` what a measurement of n of them reads, which never falls. All queries are measured on, at ten moments
    or down to five, where these are within the share; else as many as five moments leave room for. Where that is fewer
    than `ENOUGH`, there are fewer moments, down to the end alone; one query at least is measured on.
    """
    assert steps > 0 and queries > 0, (steps, queries)
    allowed = share * trained
    for moments in range(MOST, FEWEST - 1, -1):
        made = Measurements(-(-steps // moments), queries)
        if made.count(steps) * reads(queries) <= allowed:
            return made
    made = Measurements(steps, 1)
    for moments in range(FEWEST, 0, -1):
        every = -(-steps // moments)
        room = allowed / Measurements(every, 1).count(steps)
        made = Measurements(every, max((n for n in range(1, queries + 1) if reads(n) <= room), default=1))
        if made.queries >= min(queries, ENOUGH):
            break
    return made
