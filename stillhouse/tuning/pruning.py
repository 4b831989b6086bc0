"""When a trial is given up: once it has gained less than half of the finished ones had by the same part of theirs.

Optuna's median rule compares trials at equal steps. Trainings of other lengths are measured at other parts, and a short
one often at its end alone, so curves are compared where they are measured and in between along straight lines. A
training gains most at its beginning, so a straight line asks for less than was there, and few good ones are given up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

WARM_UP = 30
"""Hundredths of a trial before which none is given up: the learning rate has only just risen."""
Curve = Mapping[int, float]
"""Hundredths of a trial's trainings that were done -> the gain in its dev figure since its start."""


def is_behind(curve: Curve, finished: Sequence[Curve]) -> bool:
    """Whether the best gain so far is below the median of the finished trials' gains at this part."""
    if not curve or not finished or max(curve) < WARM_UP:
        return False
    return max(curve.values()) < median(gain_at(other, max(curve)) for other in finished)


def gain_at(curve: Curve, part: int) -> float:
    """A curve's gain at a part, on the straight line between the points beside it; it begins at 0."""
    points = sorted({0: 0.0, **curve}.items())
    for (before, low), (after, high) in pairwise(points):
        if before <= part <= after:
            return low + (high - low) * (part - before) / (after - before)
    return points[-1][1]
