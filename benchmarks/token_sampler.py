"""Draws any number of passages from a trigram model of a token cache, so a large corpus does not repeat a small one.

The model is an interpolated maximum-likelihood model. With probability `trigram`, the next token is the one after a
random occurrence of the last two tokens in the real corpus; otherwise, the one after a random occurrence of the last
token, or (`unigram`) any token.

Shape suffixes: M passages that are drawn together.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.arrays import new_array, save_array

PASSAGES_AT_ONCE = 100_000
TRIGRAM, UNIGRAM = 0.75, 0.03


class TokenSampler:
    """A trigram model of `ids` int32 [T] with passage borders `offsets` int64 [N + 1]."""

    def __init__(self, ids: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        self.ids = np.asarray(ids)
        self.lengths = np.diff(offsets)
        self.first = self.ids[offsets[:-1][self.lengths > 0]]
        left = np.repeat(offsets[1:], self.lengths) - np.arange(len(ids))
        two = np.flatnonzero(left >= 2)
        by_token = two[np.argsort(self.ids[two], kind="stable")]
        self.after_one = self.ids[by_token + 1]
        self.begins_one = np.searchsorted(self.ids[by_token], np.arange(int(self.ids.max()) + 2))
        three = np.flatnonzero(left >= 3)
        pairs = self._pair(self.ids[three], self.ids[three + 1])
        order = np.argsort(pairs)
        self.after_two = self.ids[three[order] + 2]
        self.pairs, begins = np.unique(pairs[order], return_index=True)
        self.begins_two = np.append(begins, len(order))

    def write(self, folder: Path, tokens: int, seed: int) -> None:
        """Writes about `tokens` tokens as `ids.npy` and `offsets.npy`."""
        rng = np.random.default_rng(seed)
        lengths = rng.choice(self.lengths[self.lengths > 0], size=2 * tokens // max(1, int(self.lengths.mean())) + 1)
        lengths = lengths[: int(np.searchsorted(np.cumsum(lengths), tokens)) + 1]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        folder.mkdir(parents=True, exist_ok=True)
        ids = new_array(folder / "ids.npy", np.int32, int(offsets[-1]))
        for begin in range(0, len(lengths), PASSAGES_AT_ONCE):
            borders = offsets[begin : begin + PASSAGES_AT_ONCE + 1]
            ids[borders[0] : borders[-1]] = self._passages(np.diff(borders), rng)
        save_array(folder / "offsets.npy", offsets)

    def _passages(self, lengths: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int32]:
        """Passages of the given lengths end to end; the longest come first while drawing, so that the rest are cut."""
        longest_first = np.argsort(-lengths, kind="stable")
        begins = (np.cumsum(lengths) - lengths)[longest_first]
        sorted_lengths = lengths[longest_first]
        out = np.empty(int(lengths.sum()), dtype=np.int32)
        last_M = rng.choice(self.first, size=len(lengths))
        before_M = np.full(len(lengths), -1, dtype=np.int32)
        out[begins] = last_M
        for place in range(1, int(sorted_lengths[0])):
            alive = int(np.searchsorted(-sorted_lengths, -place, side="left"))
            next_M = self._next(before_M[:alive], last_M[:alive], rng)
            before_M, last_M = last_M[:alive], next_M
            out[begins[:alive] + place] = next_M
        return out

    def _next(self, before_M: NDArray[np.int32], last_M: NDArray[np.int32], rng: np.random.Generator) -> NDArray:
        chance_M, dice_M = rng.random(len(last_M)), rng.random(len(last_M))
        begin_M, end_M = self.begins_one[last_M], self.begins_one[last_M + 1]
        anywhere_M = self.ids[(dice_M * len(self.ids)).astype(np.int64)]
        place_M = np.minimum(begin_M + (dice_M * (end_M - begin_M)).astype(np.int64), len(self.after_one) - 1)
        next_M = np.where((end_M > begin_M) & (chance_M >= UNIGRAM), self.after_one[place_M], anywhere_M)
        use_M = np.flatnonzero((before_M >= 0) & (chance_M >= 1 - TRIGRAM))
        pair_M = self._pair(before_M[use_M], last_M[use_M])
        row_M = np.minimum(np.searchsorted(self.pairs, pair_M), len(self.pairs) - 1)
        found_M = self.pairs[row_M] == pair_M
        row_M, use_M = row_M[found_M], use_M[found_M]
        width_M = self.begins_two[row_M + 1] - self.begins_two[row_M]
        next_M[use_M] = self.after_two[self.begins_two[row_M] + (dice_M[use_M] * width_M).astype(np.int64)]
        return next_M

    @staticmethod
    def _pair(one: NDArray[np.int32], other: NDArray[np.int32]) -> NDArray[np.int64]:
        return (one.astype(np.int64) << 32) | other
