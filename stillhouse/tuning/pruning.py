"""The pruning rule: a trial stops when its gain is below the median gain of the finished trials at the same part.

Optuna's median rule compares trials at equal steps. Trainings of different lengths are measured at different parts, and
a short one often only at its end, so curves are interpolated linearly between measurements. A training gains most at
its beginning, so interpolation underestimates the finished trials, and few good trials are pruned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

WARM_UP = 30
"""Percentage of a trial before which it is not pruned: the learning rate has only just warmed up."""
Curve = Mapping[int, float]
"""Percentage of a trial's training that is done -> the gain in its dev figure since its start."""


def is_behind(curve: Curve, finished: Sequence[Curve]) -> bool:
    """Whether the best gain so far is below the median of the finished trials' gains at this part."""
    if not curve or not finished or max(curve) < WARM_UP:
        return False
    return max(curve.values()) < median(gain_at(other, max(curve)) for other in finished)


def gain_at(curve: Curve, part: int) -> float:
    """A curve's gain at a part, interpolated between the neighbouring points; it begins at 0."""
    points = sorted({0: 0.0, **curve}.items())
    for (before, low), (after, high) in pairwise(points):
        if before <= part <= after:
            return low + (high - low) * (part - before) / (after - before)
    return points[-1][1]
