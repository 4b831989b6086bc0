"""Whether two samples of queries look alike: tests of their vectors and of the best scores that they get.

Both are two-sample Kolmogorov-Smirnov tests from scipy. The statistic is the largest difference between the shares of
the two samples below a value: 0 for equal samples, 1 for samples that do not overlap. Vectors are compared along random
directions. Directions fitted to one sample, such as its principal components, would make it differ from any other.

Shape suffixes: R reference queries, A asked queries, D width, K directions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

DIRECTIONS = 8
SURE = 0.001
"""A smaller p-value counts as a difference. The window is tested again and again, so 0.05 would be too large."""


class Shift(NamedTuple):
    """The distance of two samples, from 0 to 1, and its p-value."""

    statistic: float
    p: float

    @property
    def sure(self) -> bool:
        return self.p < SURE


def score_shift(reference_R: NDArray[np.float32], asked_A: NDArray[np.float32]) -> Shift:
    """The test of the best scores, float32 [R] and [A]."""
    from scipy.stats import ks_2samp

    found = ks_2samp(reference_R, asked_A, method="asymp")
    return Shift(float(found.statistic), float(found.pvalue))


def query_shift(reference_RD: NDArray[np.float32], asked_AD: NDArray[np.float32], seed: int = 0) -> Shift:
    """The test of vectors, float32 [R, D] and [A, D]: the largest statistic over all directions.

    The p-value is the smallest one times the number of directions (Bonferroni), so that it holds for all together.
    """
    width = reference_RD.shape[1]
    directions_DK = np.random.default_rng(seed).standard_normal((width, DIRECTIONS)).astype(np.float32)
    reference_KR, asked_KA = (reference_RD @ directions_DK).T, (asked_AD @ directions_DK).T
    found = [score_shift(reference_R, asked_A) for reference_R, asked_A in zip(reference_KR, asked_KA)]
    return Shift(max(each.statistic for each in found), min(1.0, DIRECTIONS * min(each.p for each in found)))
