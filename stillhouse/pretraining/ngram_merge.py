"""Merges sorted runs of n-gram keys from disk into one table, in bounded memory and without a loop over n-grams.

Evenly sampled keys of the runs divide the key space into parts that each fit into memory. A part takes its slice of
every run, sorts them together and adds up equal keys. Parts are merged in parallel and written in order. A run holds
each key at most once, so a single frequent n-gram cannot make a part too large.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.arrays import write_numbers
from stillhouse.pretraining.ngram_tables import Order, map_numbers

BYTES_A_ROW = 72
"""Memory per key while its part is merged: keys, counts, both sorted, the sort order and derived arrays."""

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class Memory:
    """The memory limit of the counting: `size` bytes, shared by `workers` threads."""

    size: int = 1 << 30
    workers: int = 2

    def rows(self, bytes_a_row: int) -> int:
        """How many rows each thread may hold."""
        return max(16, self.size // (self.workers * bytes_a_row))


MEMORY = Memory()


@dataclass(frozen=True)
class Run:
    """Distinct sorted keys and how often each was seen: uint64 [G] and uint32 or int64 [G]."""

    keys: NDArray[np.uint64]
    counts: NDArray[np.integer]

    def spill(self, path: Path) -> Run:
        """Write the run to two files and memory-map them."""
        keys, counts = path.with_suffix(".keys"), path.with_suffix(".counts")
        for place, numbers in ((keys, self.keys), (counts, self.counts)):
            with place.open("wb") as file:
                write_numbers(file, numbers)
        return Run(map_numbers(keys, np.uint64), map_numbers(counts, self.counts.dtype.type))


def in_order(work: Callable[[A], B], items: Iterable[A], workers: int) -> Iterator[B]:
    """Yield `work(item)` for every item in order, on threads, at most one item ahead of the workers.

    NumPy sorts, gathers and compares without Python's lock, so threads use all cores.
    """
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[B]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def add_up(keys: NDArray[np.uint64], counts: NDArray[np.integer] | None) -> Run:
    """Turn sorted keys with repetitions and their counts (1 each if None) into a run."""
    new = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    if counts is not None:
        sums = np.add.reduceat(counts, starts) if len(starts) else counts
        return Run(keys[starts], sums)
    return Run(keys[starts], np.diff(starts, append=len(keys)).astype(np.uint32))


def merge_runs(
    runs: Sequence[Run], cuts: Mapping[int, int], bits: int, folder: Path, memory: Memory
) -> dict[int, Order]:
    """One table for every length in `cuts`, which maps it to the number of bits to drop from a key.

    Keys whose last token after the cut is 0 are left out: their passage ended earlier. `bits` is the width of a token.
    The tables are files in `folder`.
    """
    writers = {n: _Writer(folder / f"order_{n}") for n in cuts}
    mask = np.uint64((1 << bits) - 1)

    def merge_part(slices: Sequence[slice]) -> dict[int, Run]:
        merged = _sorted_together([Run(run.keys[part], run.counts[part]) for run, part in zip(runs, slices)])
        made = {}
        for n, cut in sorted(cuts.items(), reverse=True):
            shorter = add_up(merged.keys >> np.uint64(cut), merged.counts) if cut else merged
            there = (shorter.keys & mask) != 0
            made[n] = Run(shorter.keys[there], shorter.counts[there])
        return made

    for made in in_order(merge_part, _parts(runs, memory.rows(BYTES_A_ROW)), memory.workers):
        for n, run in made.items():
            writers[n].append(run)
    return {n: writer.close() for n, writer in writers.items()}


def _sorted_together(pieces: Sequence[Run]) -> Run:
    pieces = [piece for piece in pieces if len(piece.keys)]
    if len(pieces) == 1:
        return Run(np.array(pieces[0].keys), pieces[0].counts.astype(np.int64))
    keys = np.concatenate([piece.keys for piece in pieces])
    order = np.argsort(keys)
    counts = np.concatenate([piece.counts for piece in pieces])[order].astype(np.int64)
    return add_up(keys[order], counts)


def _parts(runs: Sequence[Run], rows: int) -> list[list[slice]]:
    """For every part of the key space, the slice of every run; about `rows` rows in total."""
    total = sum(len(run.keys) for run in runs)
    if not total:
        return []
    step = max(1, rows // (4 * len(runs)))
    sample = np.sort(np.concatenate([run.keys[::step] for run in runs]))
    parts = -(-2 * total // rows) if total > rows else 1
    borders = np.unique(sample[np.arange(1, parts) * len(sample) // parts])
    ends = [[0, *np.searchsorted(run.keys, borders).tolist(), len(run.keys)] for run in runs]
    slices = [[slice(end[part], end[part + 1]) for end in ends] for part in range(len(borders) + 1)]
    return [part for part in slices if any(run.start < run.stop for run in part)]


class _Writer:
    """Appends runs in key order. It holds back the last key, because the next run may begin with it."""

    def __init__(self, path: Path) -> None:
        self.paths = (path.with_suffix(".keys"), path.with_suffix(".counts"))
        self.files: list[IO[bytes]] = [place.open("wb") for place in self.paths]
        self.last: Run | None = None

    def append(self, run: Run) -> None:
        if not len(run.keys):
            return
        counts = run.counts.astype(np.int64)
        if self.last is not None:
            if self.last.keys[0] == run.keys[0]:
                counts[0] += self.last.counts[0]
            else:
                self._write(self.last.keys, self.last.counts)
        self._write(run.keys[:-1], counts[:-1])
        self.last = Run(run.keys[-1:].copy(), counts[-1:].copy())

    def close(self) -> Order:
        if self.last is not None:
            self._write(self.last.keys, self.last.counts)
        for file in self.files:
            file.close()
        keys, counts = map_numbers(self.paths[0], np.uint64), map_numbers(self.paths[1], np.int64)
        return Order(keys, counts, int(counts.sum()))

    def _write(self, keys: NDArray, counts: NDArray) -> None:
        write_numbers(self.files[0], keys)
        write_numbers(self.files[1], counts)
