"""How certain the figures of a training are: 95 % intervals of means over questions and over batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import bootstrap_intervals


def interval_of(values: pd.Series) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of a measure, from its values for each question."""
    low_V, high_V = bootstrap_intervals(values.to_numpy()[:, None], Samples.bootstrap_samples, Samples.seed)
    return float(low_V[0]), float(high_V[0])


FEWEST_BATCHES = 3
"""With two, an interval is so wide that it says nothing."""


def interval_of_batches(batches: Sequence[tuple[int, float]]) -> tuple[float, float] | None:
    """The 95 % interval of a mean loss, from the size and the mean loss of each batch; None for one or two batches.

    A loss with negatives from its batch has no value for one example, so batches are the sample. They are few: the
    width is Student's t. The variance of a batch's mean is taken to be inverse to its size; the last may be short.

    >>> [round(bound, 3) for bound in interval_of_batches([(2, 1.0), (2, 3.0), (2, 2.0)])]
    [-0.484, 4.484]
    """
    from scipy.special import stdtrit

    if len(batches) < FEWEST_BATCHES:
        return None
    count_N, loss_N = np.array(batches, dtype=np.float64).T
    mean, degrees = float(np.average(loss_N, weights=count_N)), len(batches) - 1
    error = np.sqrt((count_N * (loss_N - mean) ** 2).sum() / degrees / count_N.sum())
    width = float(stdtrit(degrees, 0.975) * error)
    return mean - width, mean + width
