"""Numbers texts without keeping them: a hash table of digests in NumPy arrays.

A Python dictionary of strings takes about 150 bytes per key; this table takes 24 to 40, whatever the length of a text.

Shapes: N known digests, B digests per call.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

WIDTH = 16
"""Bytes of a digest. Of 10^8 texts, two have the same 128 bits with a probability of about 10^-23."""
_FEWEST = 1 << 10
_AT_ONCE = 1 << 16
"""Digests that are inserted at once."""


def digests_of(texts: Sequence[str]) -> NDArray[np.uint64]:
    """The 128-bit BLAKE2b digest of each text, uint64 [B, 2]; texts may hold lone surrogates."""
    coded = (text.encode("utf-8", errors="surrogatepass") for text in texts)
    digests = b"".join([hashlib.blake2b(data, digest_size=WIDTH).digest() for data in coded])
    return np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)


class GrowingArray:
    """An array [N, ...] whose rows have the shape `row`; `append` lengthens it."""

    def __init__(self, dtype: DTypeLike, row: tuple[int, ...] = ()) -> None:
        self._count = 0
        self._room = np.zeros((_FEWEST, *row), dtype)

    def __len__(self) -> int:
        return self._count

    @property
    def array(self) -> NDArray[Any]:
        return self._room[: self._count]

    def append(self, rows: NDArray[Any]) -> None:
        begin, self._count = self._count, self._count + len(rows)
        if self._count > len(self._room):
            # `resize` copies nothing if the system can extend the array in place.
            self._room.resize((self._count + self._count // 4, *self._room.shape[1:]), refcheck=False)
        self._room[begin : self._count] = rows


class DigestNumbers:
    """Numbers digests from 0 in the order of their first appearance.

    Open addressing with linear probing; at most half of the slots are taken. A slot holds a number, which is the row
    of the digest.
    """

    def __init__(self) -> None:
        self._digests = GrowingArray(np.uint64, (2,))
        self._slots = np.full(4 * _FEWEST, -1, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def digests(self) -> NDArray[np.uint64]:
        """The known digests in the order of their numbers, uint64 [N, 2]."""
        return self._digests.array

    def find(self, digests_B2: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The number of each digest, int64 [B]; -1 for an unknown digest."""
        known_N2 = self._digests.array
        found_B = np.full(len(digests_B2), -1, dtype=np.int64)
        open_B = np.arange(len(digests_B2))
        slots_B = self._home(digests_B2)
        while len(open_B):
            there_B = self._slots[slots_B]
            taken_B = there_B >= 0
            there_B, open_B, slots_B = there_B[taken_B], open_B[taken_B], slots_B[taken_B]
            same_B = (known_N2[there_B] == digests_B2[open_B]).all(axis=1)
            found_B[open_B[same_B]] = there_B[same_B]
            open_B, slots_B = open_B[~same_B], self._next(slots_B[~same_B])
        return found_B

    def add(self, digests_B2: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The number of each digest, int64 [B]; unknown digests get the next numbers, in their order."""
        numbers_B = self.find(digests_B2)
        unknown_U2 = digests_B2[numbers_B < 0]
        if not len(unknown_U2):
            return numbers_B
        # `order_U` groups equal digests and keeps their order: the first of each group is new, the others repeat it.
        order_U = np.lexsort((unknown_U2[:, 1], unknown_U2[:, 0]))
        begins_U = np.append(True, (unknown_U2[order_U[1:]] != unknown_U2[order_U[:-1]]).any(axis=1))
        first_U = np.empty(len(order_U), dtype=np.int64)
        first_U[order_U] = order_U[begins_U][np.cumsum(begins_U) - 1]
        new_U = first_U == np.arange(len(first_U))
        numbers_B[numbers_B < 0] = len(self) + (np.cumsum(new_U) - 1)[first_U]
        self._append(unknown_U2[new_U])
        return numbers_B

    def _append(self, digests_U2: NDArray[np.uint64]) -> None:
        """Adds new digests, each given once."""
        begin = len(self)
        self._digests.append(digests_U2)
        assert len(self) < 2**31, "numbers are int32"
        if 2 * len(self) > len(self._slots):
            slots, begin = len(self._slots), 0
            while 2 * len(self) > slots:
                slots *= 2
            self._slots = np.empty(0, dtype=np.int32)  # freed before its successor is made
            self._slots = np.full(slots, -1, dtype=np.int32)
        for start in range(begin, len(self), _AT_ONCE):
            self._place(np.arange(start, min(start + _AT_ONCE, len(self)), dtype=np.int32))

    def _place(self, numbers_B: NDArray[np.int32]) -> None:
        """Puts numbers into free slots. Of several numbers for one slot, the last stays and the others move on."""
        slots_B = self._home(self._digests.array[numbers_B])
        while len(numbers_B):
            free_B = self._slots[slots_B] < 0
            self._slots[slots_B[free_B]] = numbers_B[free_B]
            out_B = self._slots[slots_B] != numbers_B
            numbers_B, slots_B = numbers_B[out_B], self._next(slots_B[out_B])

    def _home(self, digests_B2: NDArray[np.uint64]) -> NDArray[np.int64]:
        return (digests_B2[:, 0] & np.uint64(len(self._slots) - 1)).astype(np.int64)

    def _next(self, slots_B: NDArray[np.int64]) -> NDArray[np.int64]:
        return (slots_B + 1) & (len(self._slots) - 1)
