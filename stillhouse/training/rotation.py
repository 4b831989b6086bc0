"""Seeded turns: every query goes through its candidates in its own random order, some of them each time it is seen.

The order is drawn from (seed, stream, query) alone, and a turn is a slice of it. So a draw does not depend on the
step, the batch or earlier draws. A killed run resumes with the same draws, and one step scores what a later one draws.

Shapes: B queries, C candidates per query, N candidates per turn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

POSITIVES, NEGATIVES, RANDOM = 0, 1, 2
"""Streams, which make draws for different purposes independent."""

QUERIES_AT_ONCE = 4096
LAST = np.uint64(2**64 - 1)
STEP = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio, the step of SplitMix64."""


def keys(seed: int, stream: int, queries_B: NDArray[np.int64], columns_C: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Random uint64 [B, C], each drawn from (seed, stream, query, column) alone."""
    start = _mixed(np.array([seed % 2**64], dtype=np.uint64) + STEP)
    start = _mixed(start + np.array([stream], dtype=np.uint64) * STEP)
    start_B = _mixed(start + queries_B.astype(np.uint64) * STEP)
    return _mixed(start_B[:, None] + (columns_C.astype(np.uint64) + np.uint64(1)) * STEP)


def turn(
    allowed_BC: NDArray[np.bool_],
    queries_B: NDArray[np.int64],
    times_B: NDArray[np.int64],
    count: int,
    seed: int,
    stream: int,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The columns that turn `times_B` (from 0) takes, int64 [B, N], and which places are filled, bool [B, N].

    Each turn takes the next `count` = N columns and starts over after the last, so no column repeats before every
    allowed one was taken. A query with fewer than `count` gives all its columns in every turn.
    """
    keys_BC = keys(seed, stream, queries_B, np.arange(allowed_BC.shape[1])) >> np.uint64(1)
    order_BC = np.argsort(np.where(allowed_BC, keys_BC, LAST), axis=1, kind="stable")
    available_B1 = allowed_BC.sum(axis=1)[:, None]
    places_N = np.arange(count)
    filled_BN = places_N < available_B1
    if not order_BC.shape[1]:
        return np.zeros(filled_BN.shape, np.int64), filled_BN
    # A query with too few columns for a turn always begins with its first.
    begin_B1 = np.where(available_B1 > count, times_B[:, None] * count, 0)
    places_BN = np.where(filled_BN, (begin_B1 + places_N) % np.maximum(available_B1, 1), 0)
    return np.take_along_axis(order_BC, places_BN, axis=1), filled_BN


def first_turn(allowed_QC: NDArray[np.bool_], queries_Q: NDArray[np.int64], count: int, seed: int) -> NDArray[np.bool_]:
    """The candidates that a training with this seed draws first: `count` of each query's allowed ones, bool [Q, C].

    A training that may draw only these draws all of them before any repeats, for every number drawn at a time.
    """
    chosen_QC = np.zeros_like(allowed_QC)
    for start in range(0, len(queries_Q), QUERIES_AT_ONCE):
        part = slice(start, start + QUERIES_AT_ONCE)
        never = np.zeros(len(queries_Q[part]), dtype=np.int64)
        columns_BN, filled_BN = turn(allowed_QC[part], queries_Q[part], never, count, seed, NEGATIVES)
        place_P, taken_P = np.nonzero(filled_BN)
        chosen_QC[part][place_P, columns_BN[place_P, taken_P]] = True
    return chosen_QC


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's mixing (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators")."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
