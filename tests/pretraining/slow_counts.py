"""Passages as the arrays of a token folder, and their n-gram counts from dictionaries."""

from __future__ import annotations

from collections import Counter

import numpy as np

Passages = list[list[int]]


def flat(passages: Passages) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array([token for passage in passages for token in passage], dtype=np.int32)
    return ids, np.cumsum([0] + [len(passage) for passage in passages]).astype(np.int64)


def slow_counts(passages: Passages, longest: int) -> list[Counter[tuple[int, ...]]]:
    return [
        Counter(tuple(passage[i : i + n]) for passage in passages for i in range(len(passage) - n + 1))
        for n in range(1, longest + 1)
    ]
