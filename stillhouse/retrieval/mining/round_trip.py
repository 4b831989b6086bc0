"""The round trip of generated questions: from a passage to a question, and through a search back to the passage.

If the search does not find the passage, the question is about something else, or so vague that many passages answer it.

Shapes: Q questions, K ranks.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def comes_back(rows_Q: NDArray[np.int64], rankings: Iterable[NDArray[np.int32]]) -> NDArray[np.bool_]:
    """Whether any of the rankings, each int32 rows [Q, K], has the question's own passage, `rows_Q`."""
    found_Q = np.zeros(len(rows_Q), dtype=np.bool_)
    for rows_QK in rankings:
        found_Q |= (rows_QK == rows_Q[:, None]).any(axis=1)
    return found_Q
