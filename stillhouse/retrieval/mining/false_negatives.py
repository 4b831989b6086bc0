"""Filters of false negatives: passages without a qrel that a model nevertheless takes for right answers.

A filter is an `Accept`; mining takes any number of them. Both existing filters compare a candidate's score with the
scores of the query's positives, which are computed even if a ranking did not find them. With several positives the
lowest score counts: a candidate that scores like a known answer is suspect.

Shapes: Q queries, P pairs of a query and a passage.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Accept = Callable[[NDArray[np.int64], NDArray[np.int32]], NDArray[np.bool_]]
"""`accept(query_P, row_P)`: whether each passage may be a negative of its query, bool [P].

Queries are numbered as in `training_queries`, passages by their rows.
"""

Score = Callable[[NDArray[np.int64], NDArray[np.int32]], NDArray[np.float32]]
"""`score(query_P, row_P)`: float32 [P], higher for a better answer."""

MARGINS = ("none", "absolute", "relative", "both")


def limits(
    kind: str, absolute: float, relative: float, positive_scores_P: NDArray[np.float32], offsets: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The score above which a candidate is taken for a right answer, float32 [Q].

    s is the lowest score of a query's positives, which are `positive_scores_P[offsets[i]:offsets[i + 1]]`. The limit is
    s - `absolute` for "absolute", s - `relative` * |s| for "relative" (below s for either sign), and the lower of the
    two for "both".
    """
    assert kind in MARGINS[1:] and np.diff(offsets).all(), "every query has a positive"
    lowest_Q = np.minimum.reduceat(positive_scores_P, offsets[:-1]) if len(positive_scores_P) else positive_scores_P
    candidates = {"absolute": lowest_Q - absolute, "relative": lowest_Q - relative * np.abs(lowest_Q)}
    chosen = [candidates[kind]] if kind in candidates else list(candidates.values())
    return np.minimum.reduce(chosen).astype(np.float32)


def below(score: Score, limits_Q: NDArray[np.float32]) -> Accept:
    """Accept candidates that score at most their query's limit."""
    return lambda query_P, row_P: score(query_P, row_P) <= limits_Q[query_P]
