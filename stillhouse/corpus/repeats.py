"""Finds repeated digests in the parts of a source, however many digests there are.

The digests of all parts are divided by their upper bits into buckets of about two million. Each bucket is sorted by
itself, in any process, so memory holds only a bucket and the repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.part_files import Keys, PartFiles
from stillhouse.corpus.sources.rows import Each

IN_A_BUCKET = 1 << 21

Without = Mapping[int, NDArray[np.int64]]
"""The rows to ignore, ascending, by the number of the part."""


@dataclass(frozen=True)
class Repeats:
    """Rows with an earlier digest, by part and row: int64 [R] each. `same` (bool [R]): the content is the same too."""

    part: NDArray[np.int64]
    row: NDArray[np.int64]
    same: NDArray[np.bool_]

    def of_part(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The rows of one part, ascending, and `same` of each."""
        begin, end = np.searchsorted(self.part, [number, number + 1])
        return self.row[begin:end], self.same[begin:end]


def buckets_of(count: int) -> list[tuple[int, int]]:
    """The bounds of each bucket in the upper halves of `count` digests."""
    buckets = max(1, -(-count // IN_A_BUCKET))
    edges = [(number << 64) // buckets for number in range(buckets + 1)]
    return list(pairwise(edges))


def find_repeats(folders: Sequence[Path], name: str, count: int, without: Without, each: Each) -> Repeats:
    """The repeats among `count` keys of the parts in `folders`: all equal keys after the first, by part and row.

    Among `begins`, the first sound key counts as the first; keys before it are not repeats.
    """
    found = list(each(partial(_repeats_in, folders, name, without), buckets_of(count)))
    part, row, same = (np.concatenate(arrays) for arrays in zip(*found))
    order = np.lexsort((row, part))
    return Repeats(part[order], row[order], same[order])


def without_rows(keys: Keys, rows: NDArray[np.int64] | None) -> Keys:
    return keys if rows is None or not len(rows) else keys[~np.isin(keys.rows, rows)]


def _repeats_in(
    folders: Sequence[Path], name: str, without: Without, bounds: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The repeats of a bucket: part, row and `same` of each."""
    high, low, part, row, content, sound = [], [], [], [], [], []
    for number, folder in enumerate(folders):
        files = PartFiles(folder)
        keys = files.keys(name)
        keys = without_rows(keys[keys.within(*bounds)], without.get(number))
        high.append(keys.high)
        low.append(keys.low)
        row.append(keys.rows)
        part.append(np.full(len(keys), number))
        content.append(files.contents[keys.rows] if name == "ids" else np.zeros(len(keys), np.uint64))
        sound.append(files.sound[keys.rows] if name == "begins" else np.ones(len(keys), np.bool_))
    high_B, low_B, part_B, row_B = (np.concatenate(arrays) for arrays in (high, low, part, row))
    content_B, sound_B = np.concatenate(content), np.concatenate(sound)
    # The sort is stable, so equal digests stay in the order of parts and rows.
    order = np.lexsort((low_B, high_B))
    high_B, low_B, content_B = high_B[order], low_B[order], content_B[order]
    run_B = np.cumsum(np.append(True, (high_B[1:] != high_B[:-1]) | (low_B[1:] != low_B[:-1]))[: len(order)]) - 1
    sound_at = np.flatnonzero(sound_B[order])
    first_of_run = np.full(run_B.max(initial=-1) + 1, len(order))
    np.minimum.at(first_of_run, run_B[sound_at], sound_at)
    again = np.flatnonzero(np.arange(len(order)) > first_of_run[run_B])
    same = content_B[again] == content_B[first_of_run[run_B[again]]]
    return part_B[order[again]], row_B[order[again]], same
