"""Rankings as arrays of rows: put into order by score, cut to what is kept, and searched for repeats.

NumPy alone, so that a search need not wait for more. Shape suffixes: Q queries or B of them, K candidates, D kept ones.
Rows are those of passages, -1 is padding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int32]
"""Passage rows int32 [Q, D], best first, padded with -1."""


def order_by_score(scores_QK: np.ndarray, rows_QK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorts every ranking by score, best first; equal scores stand in corpus order and padding (-1) at the end.

    Returns `(scores_QK, rows_QK)` as new arrays: float32, with -inf under padded rows, and int32.
    """
    assert scores_QK.shape == rows_QK.shape and rows_QK.ndim == 2, (scores_QK.shape, rows_QK.shape)
    rows_QK = np.asarray(rows_QK, dtype=np.int32)
    padded_QK = rows_QK < 0
    scores_QK = np.where(padded_QK, np.float32(-np.inf), np.asarray(scores_QK, dtype=np.float32))
    assert not np.isnan(scores_QK).any(), "a score is NaN"
    order_QK = np.lexsort((rows_QK, -scores_QK, padded_QK), axis=1)
    return np.take_along_axis(scores_QK, order_QK, axis=1), np.take_along_axis(rows_QK, order_QK, axis=1)


def first_kept(rows_QK: Rows, keep_QK: NDArray[np.bool_], depth: int) -> Rows:
    """The first `depth` rows that are kept of each query, moved together, padded with -1."""
    place_QK = np.cumsum(keep_QK, axis=1, dtype=np.int32) - 1
    query_P, column_P = np.nonzero(keep_QK & (place_QK < depth))
    rows_QD = np.full((len(rows_QK), depth), -1, dtype=np.int32)
    rows_QD[query_P, place_QK[query_P, column_P]] = rows_QK[query_P, column_P]
    return rows_QD


def repeated(rows_BK: Rows) -> NDArray[np.bool_]:
    """Whether each row stands further left too, in the same query."""
    order_BK = np.argsort(rows_BK, axis=1, kind="stable")
    sorted_BK = np.take_along_axis(rows_BK, order_BK, axis=1)
    same_BK = np.zeros(rows_BK.shape, dtype=np.bool_)
    same_BK[:, 1:] = sorted_BK[:, 1:] == sorted_BK[:, :-1]
    result_BK = np.empty_like(same_BK)
    np.put_along_axis(result_BK, order_BK, same_BK, axis=1)
    return result_BK
