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


FULL_BATCHES = 4
"""With fewer, an interval is so wide that it says nothing, and a short last batch makes it wrong."""


def interval_of_batches(batches: Sequence[tuple[int, float]]) -> tuple[float, float] | None:
    """The 95 % interval of a mean loss, from the size and the mean loss of each batch; None for a few batches.

    A loss with negatives from its batch has no value for one example, and there are few batches: Student's t allows for
    both.

    >>> [round(bound, 3) for bound in interval_of_batches([(2, 1.0), (2, 3.0), (2, 2.0), (2, 2.0)])]
    [0.701, 3.299]
    """
    from scipy.special import stdtrit

    count_N, loss_N = np.array(batches, dtype=np.float64).T
    if count_N.sum() < FULL_BATCHES * count_N.max():
        return None
    share_N, degrees = count_N / count_N.sum(), len(batches) - 1
    mean = float(share_N @ loss_N)
    error = float(np.sqrt(((share_N * (loss_N - mean)) ** 2).sum() * len(batches) / degrees))
    width = float(stdtrit(degrees, 0.975)) * error
    return mean - width, mean + width
