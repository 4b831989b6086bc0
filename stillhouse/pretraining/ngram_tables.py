"""Sorted tables of n-gram counts on disk, and the look-up of all n-grams in a block of passages.

An n-gram is one uint64. Tokens are renumbered 1..V in the order of their ids (0 is "no token") and packed with b bits
each. An n-gram that does not fit keeps its last tokens; its first tokens become their row in the table of their
length. Either way keys sort like the n-grams, token by token. Lengths that share a layout form a level: with 30,522
word pieces (b = 15), n = 1..4 is one level and n = 5, 6 the next.

Shape suffixes: T tokens of a block, G distinct n-grams of a length, M n-grams to look up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KEY_BITS = 64
AT_ONCE = 1 << 14
"""Keys per search: few enough that their part of the table stays in the CPU's cache."""


@dataclass(frozen=True)
class Order:
    """All n-grams of one length: `keys` uint64 [G], sorted, and `counts` int64 [G], both memory-mapped.

    `total` is the number of all occurrences in the corpus, including pruned n-grams.
    """

    keys: NDArray[np.uint64]
    counts: NDArray[np.int64]
    total: int

    def rows(self, keys_M: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row of each key, or -1 if the table lacks it; `keys_M` is sorted."""
        rows_M = np.full(len(keys_M), -1, dtype=np.int64)
        for begin in range(0, len(keys_M), AT_ONCE):
            piece = keys_M[begin : begin + AT_ONCE]
            low, high = np.searchsorted(self.keys, [piece[0], piece[-1]])
            near = self.keys[low : high + 1]
            if len(near):
                place = np.minimum(np.searchsorted(near, piece), len(near) - 1)
                rows_M[begin : begin + AT_ONCE] = np.where(near[place] == piece, place + low, -1)
        return rows_M


def map_numbers(path: Path, dtype: type) -> NDArray:
    """Memory-map a file of raw numbers; an empty file, which cannot be mapped, gives an empty array."""
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.zeros(0, dtype=dtype)


@dataclass(frozen=True)
class Level:
    """The lengths `head` + 1 .. `longest`; a table row stands for the first `head` tokens."""

    head: int
    longest: int

    @property
    def lengths(self) -> range:
        return range(self.head + 1, self.longest + 1)


@dataclass(frozen=True)
class Block:
    """Whole passages of the token arrays: `codes` uint64 [T] (0 for tokens without a count), `ends` int64 the positions
    after the last token of each non-empty passage, `left` int64 [T] the tokens from here to the passage's end."""

    codes: NDArray[np.uint64]
    ends: NDArray[np.int64]
    left: NDArray[np.int64]


@dataclass
class NgramTables:
    """Counts for n = 1, 2, …: `orders[n - 1]` has length n. `vocabulary` int32 [V] is sorted."""

    vocabulary: NDArray[np.int32]
    orders: list[Order]
    levels: list[Level]

    @property
    def bits(self) -> int:
        """Bits per token."""
        return max(1, len(self.vocabulary).bit_length())

    @cached_property
    def code_of_id(self) -> NDArray[np.uint64]:
        """1..V for ids in the vocabulary, 0 for others; the last entry stands for all larger ids."""
        codes = np.zeros(int(self.vocabulary.max(initial=-1)) + 2, dtype=np.uint64)
        codes[self.vocabulary] = np.arange(1, len(self.vocabulary) + 1, dtype=np.uint64)
        return codes

    def next_level(self, longest: int) -> Level:
        """The layout of the next lengths to count."""
        head = len(self.orders)
        free = KEY_BITS - (len(self.orders[-1].keys).bit_length() if head else 0)
        assert free >= self.bits, "more than 2^40 distinct n-grams"
        return Level(head, min(longest, head + free // self.bits))

    def level_of(self, n: int) -> Level:
        return next(level for level in self.levels if n <= level.longest)

    def block(self, ids_T: NDArray[np.int32], offsets: NDArray[np.int64]) -> Block:
        """Encode passages; `ids_T` holds their tokens, and `offsets` are their borders in the corpus."""
        codes_T = self.code_of_id[np.minimum(ids_T, len(self.code_of_id) - 1)]
        ends = offsets[1:] - offsets[0]
        left_T = np.repeat(ends, np.diff(offsets)) - np.arange(len(ids_T))
        return Block(codes_T, ends[ends > 0], left_T)

    def keys_of_block(self, level: Level, block: Block, head_T: NDArray[np.int64] | None) -> NDArray[np.uint64]:
        """The key of the n-gram of length `level.longest` that begins at each token, 0 for tokens after the passage.

        `head_T` is the row of the first `level.head` tokens, for a level with a head. Where it is -1 or no token
        follows the head, the key is meaningless.
        """
        tail = level.longest - level.head
        bits = np.uint64(self.bits)
        keys_T = block.codes.copy()
        for n in range(1, tail):
            follow_T = np.zeros_like(keys_T)
            follow_T[:-1] = keys_T[1:]
            follow_T[block.ends - 1] = 0
            keys_T = (block.codes << (bits * np.uint64(n))) | follow_T
        if head_T is None:
            return keys_T
        tails_T = np.zeros_like(keys_T)
        tails_T[: max(0, len(keys_T) - level.head)] = keys_T[level.head :]
        return (head_T.astype(np.uint64) << (bits * np.uint64(tail))) | tails_T

    def count_block(self, block: Block) -> list[NDArray[np.int64]]:
        """For every n, the count of the n-gram that begins at each token, 0 for unknown ones; int64 [T] each."""
        return [counts_T for counts_T, _ in self._look_up(block)]

    def heads_of_block(self, block: Block) -> NDArray[np.int64] | None:
        """The row of the longest counted n-gram that begins at each token, or -1; int64 [T]."""
        looked_up = list(self._look_up(block))
        return looked_up[-1][1] if looked_up else None

    def _look_up(self, block: Block) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Counts and rows for each length. One sort per level is enough: truncated keys stay sorted."""
        head_T = None
        for level in self.levels:
            where = np.flatnonzero(block.left > level.head)
            if head_T is not None:
                where = where[head_T[where] >= 0]
            keys = self.keys_of_block(level, block, head_T)[where]
            by_key = np.argsort(keys)
            keys, where = keys[by_key], where[by_key]
            for n in level.lengths:
                short = keys >> np.uint64(self.bits * (level.longest - n))
                new = np.ones(len(short), dtype=bool)
                np.not_equal(short[1:], short[:-1], out=new[1:])
                order = self.orders[n - 1]
                rows_M = order.rows(short[new])
                counts_M = np.where(rows_M >= 0, order.counts[rows_M], 0) if len(order.counts) else rows_M * 0
                group = np.cumsum(new) - 1
                head_T = np.full(len(block.codes), -1, dtype=np.int64)
                counts_T = np.zeros(len(block.codes), dtype=np.int64)
                head_T[where], counts_T[where] = rows_M[group], counts_M[group]
                yield counts_T, head_T

    def keys_of_grams(self, codes_MN: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """The keys of sorted n-grams of one length, and whether each has a counted head."""
        length = codes_MN.shape[1]
        level = self.level_of(length)
        keys_M = np.zeros(len(codes_MN), dtype=np.uint64)
        known_M = np.ones(len(codes_MN), dtype=bool)
        if level.head:
            heads_M, known_M = self.keys_of_grams(codes_MN[:, : level.head])
            rows_M = self.orders[level.head - 1].rows(heads_M)
            known_M &= rows_M >= 0
            keys_M = rows_M.astype(np.uint64)
        for place in range(level.head, length):
            keys_M = (keys_M << np.uint64(self.bits)) | codes_MN[:, place]
        return keys_M, known_M

    def grams(self, n: int, keys_M: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The tokens of n-grams of length n, int32 [M, n]."""
        level = self.level_of(n)
        grams_MN = np.empty((len(keys_M), n), dtype=np.int32)
        mask = np.uint64((1 << self.bits) - 1)
        for place in range(level.head, n):
            codes_M = (keys_M >> np.uint64(self.bits * (n - 1 - place))) & mask
            grams_MN[:, place] = self.vocabulary[codes_M.astype(np.int64) - 1]
        if level.head:
            rows_M = (keys_M >> np.uint64(self.bits * (n - level.head))).astype(np.int64)
            grams_MN[:, : level.head] = self.grams(level.head, self.orders[level.head - 1].keys[rows_M])
        return grams_MN


def passage_blocks(offsets: NDArray[np.int64], tokens_at_once: int) -> list[tuple[int, int]]:
    """Runs of whole passages (first, last + 1) of at most `tokens_at_once` tokens; a longer passage is its own run."""
    blocks = []
    begin, passages = 0, len(offsets) - 1
    while begin < passages:
        fits = int(np.searchsorted(offsets, offsets[begin] + tokens_at_once, side="right")) - 1
        end = min(passages, max(begin + 1, fits))
        blocks.append((begin, end))
        begin = end
    return blocks
