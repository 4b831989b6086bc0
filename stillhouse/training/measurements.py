"""How often training is measured and on how many held-out queries: a function of counts, never of a clock.

Held-out queries (passages in pre-training) are read without a backward pass, so a text that is trained on costs about
as much as three that are only read. All measurements together read at most a given share of what training reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

READS_OF_TRAINING = 3
"""How many texts can be read in the time of training on one: a backward pass takes as long as two forward passes."""
MOST, FEWEST = 10, 5
"""Measurements after the initial one. With fewer measurements, each can use more queries."""
ENOUGH = 100
"""With fewer queries, the number of measurements is reduced first, down to one at the end: a few queries tell
little."""
SHARE = 0.1
"""The share of training that measurements may take."""


@dataclass(frozen=True)
class Measurements:
    """Training is measured before the first step, after every `every` steps and at the end, on `queries` queries
    each."""

    every: int
    queries: int

    def count(self, steps: int) -> int:
        """The number of measurements of a training with this many steps, including the initial one."""
        return 1 + -(-steps // self.every)

    def told(self, steps: int, of: int, what: str, share: float) -> str:
        """A line for the log; `share` is what the measurements read of what the training reads."""
        return (
            f"measured on {self.queries} of {of} {what}, every {self.every} steps ({steps} total), {share:.1%} overhead"
        )


def within(
    share: float,
    trained: float,
    steps: int,
    queries: int,
    reads: Callable[[int], int],
    at_end: Callable[[int], int] = lambda queries: 0,
) -> Measurements:
    """Plan measurements for a training of `steps` steps that read at most `share` of what the training reads.

    `trained` is what the training reads, in texts that are only read. `queries` is the number of held-out queries, and
    `reads(n)`, which never decreases, is what measuring n of them reads; `at_end(n)` is read once, after the training.
    All queries are used, in ten down to five measurements, if that is within the share. Otherwise five measurements use
    as many queries as fit. If these are fewer than `ENOUGH`, the measurements are reduced, down to the end alone. Only
    if a single query exceeds the share, as in a training of a few examples, the measurements do, too.
    """
    allowed = share * trained
    for moments in range(MOST, FEWEST - 1, -1):
        made = Measurements(-(-steps // moments), queries)
        if made.count(steps) * reads(queries) + at_end(queries) <= allowed:
            return made
    enough = min(queries, ENOUGH)

    def fit(every: int) -> int:
        count = Measurements(every, 1).count(steps)
        return max((n for n in range(1, queries + 1) if count * reads(n) + at_end(n) <= allowed), default=0)

    for moments in range(FEWEST, 1, -1):
        every = -(-steps // moments)
        if (found := fit(every)) >= enough:
            return Measurements(every, found)
    return Measurements(steps, max(1, fit(steps)))
