"""Exact n-gram counts of a corpus of any size (CDMAE §3.2), never across passage borders.

For each chunk of whole passages, the keys of the longest n-grams at all tokens, padded at the passages' ends, are
sorted, run-length encoded and written to disk. The runs are merged once. Shorter n-grams are prefixes of the merged
keys. A setting bounds the memory, and threads share the chunks.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.pretraining.ngram_merge import MEMORY, Memory, Run, add_up, in_order, merge_runs
from stillhouse.pretraining.ngram_tables import NgramTables, passage_blocks

BYTES_A_TOKEN = 64
"""Memory per token while its chunk is counted: its id, code, key, the sort and the resulting run."""


def count_ngrams(
    ids_T: NDArray[np.int32], offsets: NDArray[np.int64], longest: int, folder: Path, memory: Memory = MEMORY
) -> NgramTables:
    """Count all n-grams inside passages, for n = 1..`longest`.

    `ids_T` int32 [T], which may be memory-mapped, holds all passages end to end, `offsets` int64 [N + 1] their borders.
    The tables are files in `folder`, which is emptied first.
    """
    blocks = passage_blocks(offsets, memory.rows(BYTES_A_TOKEN))
    shutil.rmtree(folder, ignore_errors=True)
    tables = NgramTables(_vocabulary(ids_T), [], [])
    while len(tables.orders) < longest:
        level = tables.next_level(longest)
        runs_folder = folder / "runs"
        runs_folder.mkdir(parents=True)

        def count_chunk(numbered: tuple[int, tuple[int, int]], level=level, runs_folder=runs_folder) -> Run:
            number, (begin, end) = numbered
            borders = offsets[begin : end + 1]
            block = tables.block(ids_T[borders[0] : borders[-1]], borders)
            head_T = tables.heads_of_block(block)
            keys = tables.keys_of_block(level, block, head_T)
            if head_T is not None:
                keys = keys[block.left > level.head]
            keys.sort()
            return add_up(keys, None).spill(runs_folder / f"{number}")

        runs = list(in_order(count_chunk, enumerate(blocks), memory.workers))
        cuts = {n: tables.bits * (level.longest - n) for n in level.lengths}
        made = merge_runs(runs, cuts, tables.bits, folder, memory)
        tables.orders.extend(made[n] for n in level.lengths)
        tables.levels.append(level)
        del runs
        shutil.rmtree(runs_folder)
    return tables


def _vocabulary(ids_T: NDArray[np.int32], at_once: int = 1 << 20) -> NDArray[np.int32]:
    """The sorted ids that occur."""
    occurs = np.zeros(0, dtype=bool)
    for begin in range(0, len(ids_T), at_once):
        seen = np.bincount(ids_T[begin : begin + at_once]) > 0
        if len(seen) > len(occurs):
            occurs, seen = seen, occurs
        occurs[: len(seen)] |= seen
    return np.flatnonzero(occurs).astype(np.int32)
