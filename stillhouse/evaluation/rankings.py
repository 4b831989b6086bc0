"""Rankings as arrays of rows: sorting by score, keeping some rows, and finding repeats.

This uses NumPy alone, so a search does not wait for other imports. Shape suffixes: Q queries or B of them,
K candidates, D kept candidates. Rows are passage rows; -1 is padding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int32]
"""Passage rows int32 [Q, D], best first, padded with -1."""


def order_by_score(scores_QK: np.ndarray, rows_QK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort every ranking by score, best first, with ties in corpus order and padding (-1) at the end.

    Returns `(scores_QK, rows_QK)` as new arrays: float32, with -inf for padding, and int32.
    """
    assert scores_QK.shape == rows_QK.shape and rows_QK.ndim == 2, (scores_QK.shape, rows_QK.shape)
    rows_QK = np.asarray(rows_QK, dtype=np.int32)
    padded_QK = rows_QK < 0
    scores_QK = np.where(padded_QK, np.float32(-np.inf), np.asarray(scores_QK, dtype=np.float32))
    assert not np.isnan(scores_QK).any(), "a score is NaN"
    order_QK = np.lexsort((rows_QK, -scores_QK, padded_QK), axis=1)
    return np.take_along_axis(scores_QK, order_QK, axis=1), np.take_along_axis(rows_QK, order_QK, axis=1)


def first_kept(rows_QK: Rows, keep_QK: NDArray[np.bool_], depth: int) -> Rows:
    """The first `depth` kept rows of each query, without gaps, padded with -1."""
    place_QK = np.cumsum(keep_QK, axis=1, dtype=np.int32) - 1
    query_P, column_P = np.nonzero(keep_QK & (place_QK < depth))
    rows_QD = np.full((len(rows_QK), depth), -1, dtype=np.int32)
    rows_QD[query_P, place_QK[query_P, column_P]] = rows_QK[query_P, column_P]
    return rows_QD


def repeated(rows_BK: Rows) -> NDArray[np.bool_]:
    """Whether each row also occurs further left in the same query."""
    order_BK = np.argsort(rows_BK, axis=1, kind="stable")
    sorted_BK = np.take_along_axis(rows_BK, order_BK, axis=1)
    same_BK = np.zeros(rows_BK.shape, dtype=np.bool_)
    same_BK[:, 1:] = sorted_BK[:, 1:] == sorted_BK[:, :-1]
    result_BK = np.empty_like(same_BK)
    np.put_along_axis(result_BK, order_BK, same_BK, axis=1)
    return result_BK
