"""Whole words instead of word pieces: a word is the sequence of its pieces, whatever its text.

Shape suffixes: T tokens, W words of a block, P pieces of the longest word, D distinct words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.arrays import write_numbers
from stillhouse.pretraining.ngram_tables import map_numbers, passage_blocks

TOKENS_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Words:
    """A corpus as whole words.

    `ids` int32, one per word, memory-mapped, are rows of `inventory` int32 [D, P]: the distinct words as sorted rows of
    pieces, padded with -1. `offsets` int64 [N + 1] are the passages' borders among the words.
    """

    ids: NDArray[np.int32]
    inventory: NDArray[np.int32]
    offsets: NDArray[np.int64]


def cut_into_words(
    ids_T: NDArray[np.int32], word_starts_T: NDArray[np.bool_], offsets: NDArray[np.int64], folder: Path
) -> Words:
    """Number the words of a corpus; a passage's first token begins a word. `ids` is a file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    inventories, sizes, word_offsets = [], [], [np.zeros(1, dtype=np.int64)]
    local_path, path = folder / "words.local", folder / "words.ids"
    with local_path.open("wb") as file:
        for begin, end in passage_blocks(offsets, TOKENS_AT_ONCE):
            borders = offsets[begin : end + 1]
            begins_T = word_begins(word_starts_T[borders[0] : borders[-1]], borders)
            before = np.concatenate([[0], np.cumsum(begins_T)])
            inventory, local_W = _distinct(np.asarray(ids_T[borders[0] : borders[-1]]), np.flatnonzero(begins_T))
            write_numbers(file, local_W.astype(np.int32))
            inventories.append(inventory)
            sizes.append(len(local_W))
            word_offsets.append(before[borders[1:] - borders[0]] + word_offsets[-1][-1])
    inventory, numbers = union(inventories)
    local = map_numbers(local_path, np.int32)
    ends = np.cumsum([0, *sizes])
    with path.open("wb") as file:
        for number, begin, end in zip(numbers, ends[:-1], ends[1:]):
            write_numbers(file, number[local[begin:end]].astype(np.int32))
    local_path.unlink()
    return Words(map_numbers(path, np.int32), inventory, np.concatenate(word_offsets))


def word_begins(word_starts_T: NDArray[np.bool_], borders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where words begin in a block of whole passages; `borders` are the passages' borders in the corpus."""
    begins_T = np.array(word_starts_T)
    firsts = borders[:-1] - borders[0]
    begins_T[firsts[firsts < len(begins_T)]] = True
    return begins_T


def union(inventories: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], list[NDArray[np.int32]]]:
    """The sorted distinct words of all inventories, int32 [D, P], and for each inventory the rows of its words."""
    width = max((inventory.shape[1] for inventory in inventories), default=1)
    wide = [
        np.pad(inventory, ((0, 0), (0, width - inventory.shape[1])), constant_values=-1) for inventory in inventories
    ]
    everything = np.concatenate([np.zeros((0, width), np.int32), *wide])
    if not len(everything):
        return everything, [np.zeros(0, np.int32) for _ in inventories]
    words_DP, rows = np.unique(everything, axis=0, return_inverse=True)
    ends = np.cumsum([len(inventory) for inventory in inventories])[:-1]
    return words_DP, list(np.split(rows.reshape(-1).astype(np.int32), ends))


def _distinct(ids_T: NDArray[np.int32], begins_W: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The distinct words of a block, [D, P], and every word's row. All words are numbered together, piece by piece."""
    lengths_W = np.diff(begins_W, append=len(ids_T))
    longest = int(lengths_W.max(initial=1))
    numbers_W = np.unique(ids_T[begins_W], return_inverse=True)[1].astype(np.int64)
    used = int(numbers_W.max(initial=-1)) + 1
    for place in range(1, longest):
        longer = np.flatnonzero(lengths_W > place)
        pair = (numbers_W[longer] << 32) | ids_T[begins_W[longer] + place]
        distinct, number = np.unique(pair, return_inverse=True)
        numbers_W[longer] = used + number
        used += len(distinct)
    _, first, rows_W = np.unique(numbers_W, return_index=True, return_inverse=True)
    place_P = np.arange(longest)
    inside_DP = place_P < lengths_W[first][:, None]
    where_DP = np.where(inside_DP, begins_W[first][:, None] + place_P, 0)
    words_DP = np.where(inside_DP, ids_T[where_DP], -1) if len(first) else np.zeros((0, longest))
    return words_DP.astype(np.int32), rows_W


def score_of_words(
    into_T: NDArray[np.float32],
    scores: NDArray[np.float32],
    word_starts_T: NDArray[np.bool_],
    offsets: NDArray[np.int64],
) -> None:
    """Give every token the score of its word; `scores` float32 has one entry per word of the corpus."""
    done = 0
    for begin, end in passage_blocks(offsets, TOKENS_AT_ONCE):
        borders = offsets[begin : end + 1]
        word_T = np.cumsum(word_begins(word_starts_T[borders[0] : borders[-1]], borders)) - 1 + done
        into_T[borders[0] : borders[-1]] = scores[word_T]
        done = int(word_T[-1]) + 1 if len(word_T) else done
