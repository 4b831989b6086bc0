"""Count folders: n-gram counts in an open format, and sums over several corpora or shards.

A folder holds `ngrams_<n>.npy` for every n, a structured array of `gram` int32 [n] and `count` int64, sorted by gram.
`counts.json` holds the tokenizer's digest, `min_count`, and the number of all occurrences for every n.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.arrays import write_header, write_numbers
from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import InputError
from stillhouse.pretraining.ngram_merge import MEMORY, Memory, Run, merge_runs
from stillhouse.pretraining.ngram_tables import NgramTables, Order, map_numbers

ABOUT = "counts.json"
ROWS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class About:
    """The contents of `counts.json`. `totals[n - 1]`: all occurrences of length n, including pruned ones."""

    tokenizer: str
    min_count: int
    totals: list[int]


@dataclass(frozen=True)
class Saved:
    """What was written, for every n: distinct n-grams kept, and the share of occurrences dropped by pruning."""

    distinct: list[int]
    dropped: list[float]


def save_counts(tables: NgramTables, folder: Path, *, tokenizer: str = "", min_count: int = 1) -> Saved:
    """Write a count folder without the n-grams of n >= 2 that occur less often than `min_count`."""
    folder.mkdir(parents=True, exist_ok=True)
    distinct, dropped = [], []
    for n, order in enumerate(tables.orders, start=1):
        least = min_count if n > 1 else 1
        kept = sum(int(np.count_nonzero(order.counts[part] >= least)) for part in _slices(len(order.counts)))
        dtype = np.dtype([("gram", np.int32, (n,)), ("count", np.int64)])
        occurrences = 0
        with (folder / f"ngrams_{n}.npy").open("wb") as file:
            write_header(file, dtype, (kept,))
            for part in _slices(len(order.counts)):
                often = order.counts[part] >= least
                rows = np.empty(int(often.sum()), dtype=dtype)
                rows["gram"], rows["count"] = tables.grams(n, order.keys[part][often]), order.counts[part][often]
                occurrences += int(rows["count"].sum())
                write_numbers(file, rows)
        distinct.append(kept)
        dropped.append(1 - occurrences / max(1, order.total))
    about = About(tokenizer, min_count, [order.total for order in tables.orders])
    write_json(folder / ABOUT, asdict(about))
    return Saved(distinct, dropped)


def read_about(folder: Path) -> About:
    """Raises `InputError` if the folder holds no counts."""
    if not (folder / ABOUT).is_file():
        raise InputError(f"{folder} holds no n-gram counts; `stillhouse importance` makes such a folder")
    return About(**json.loads((folder / ABOUT).read_text(encoding="utf-8")))


def load_counts(folders: Sequence[Path], work: Path, memory: Memory = MEMORY) -> tuple[NgramTables, About]:
    """The sum of the counts of all folders and its description; the tables are files in `work`, which is emptied first.

    The counts of shards add up to the counts of the whole corpus. The rare n-grams of a pruned shard are missing from
    the sum. Raises `InputError` if the folders differ in tokenizer or window.
    """
    about = _about_sum(folders)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    names = [np.load(folder / "ngrams_1.npy")["gram"][:, 0] for folder in folders]
    tables = NgramTables(np.unique(np.concatenate(names)), [], [])
    for n, total in enumerate(about.totals, start=1):
        if n > (tables.levels[-1].longest if tables.levels else 0):
            tables.levels.append(tables.next_level(len(about.totals)))
        runs = []
        for number, folder in enumerate(folders):
            rows = np.load(folder / f"ngrams_{n}.npy", mmap_mode="r")
            runs.append(_run(tables, rows, work / f"folder_{number}"))
        order = merge_runs(runs, {n: 0}, tables.bits, work, memory)[n]
        tables.orders.append(Order(order.keys, order.counts, total))
        for path in work.glob("folder_*"):
            path.unlink()
    return tables, about


def merge_counts(folders: Sequence[Path], out: Path, work: Path, memory: Memory = MEMORY) -> Saved:
    """Write the sum of count folders as one count folder."""
    tables, about = load_counts(folders, work, memory)
    return save_counts(tables, out, tokenizer=about.tokenizer, min_count=about.min_count)


def _about_sum(folders: Sequence[Path]) -> About:
    abouts = [read_about(folder) for folder in folders]
    first = abouts[0]
    for folder, about in zip(folders, abouts):
        for what, one, other in (
            ("tokenizer", first.tokenizer, about.tokenizer),
            ("window", len(first.totals), len(about.totals)),
        ):
            if one != other:
                raise InputError(
                    f"{folders[0]} and {folder} differ in {what}; make one of them again with `stillhouse importance`"
                )
    totals = [sum(counts) for counts in zip(*(about.totals for about in abouts))]
    return About(first.tokenizer, max(about.min_count for about in abouts), totals)


def _run(tables: NgramTables, rows: NDArray, path: Path) -> Run:
    """A folder's n-grams of one length as a run on disk."""
    keys_path, counts_path = path.with_suffix(".keys"), path.with_suffix(".counts")
    with keys_path.open("wb") as keys_file, counts_path.open("wb") as counts_file:
        for part in _slices(len(rows)):
            keys, known = tables.keys_of_grams(tables.code_of_id[rows["gram"][part]])
            write_numbers(keys_file, keys[known])
            write_numbers(counts_file, rows["count"][part][known].astype(np.int64))
    return Run(map_numbers(keys_path, np.uint64), map_numbers(counts_path, np.int64))


def _slices(size: int) -> Iterator[slice]:
    return (slice(begin, begin + ROWS_AT_ONCE) for begin in range(0, size, ROWS_AT_ONCE))
