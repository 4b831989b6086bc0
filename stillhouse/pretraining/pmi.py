"""Token importance of 003 §3.2: exact n-gram counts, pointwise mutual information, its average at every token.

What the paper leaves open, and what is done here:

* PMI of more than two tokens (eq. 7 has two): log p(w_1..w_n) - sum_i log p(w_i).
* p of an n-gram: its count over the number of all n-grams of the same n in the corpus.
* Words or word pieces: the tokens as the model reads them.
* Borders: an n-gram never reaches from one passage into the next. At the edges of a passage eq. 8 has terms that do
  not exist. `edges="equation"` keeps its divisor L - 1 and takes them as 0, so that a passage's first and last tokens
  count as less important; `edges="present"` divides each of its two sums by the number of its terms that exist.
  Elsewhere both are eq. 8 as printed: the sum, not the mean, of the two averages.
* Rare n-grams: none is dropped and none smoothed, so tokens of n-grams that occur once score high.

Shape suffixes: T tokens of all passages end to end, G distinct n-grams.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

EDGES = ("equation", "present")


@dataclass(frozen=True)
class Order:
    """All n-grams of one length n.

    `grams` int32 [G, n], sorted; `counts` int64 [G]; `starts` int64: the positions in the flat tokens where an n-gram
    begins that stays inside its passage; `number` int64: which row of `grams` begins there, aligned with `starts`.
    """

    grams: NDArray[np.int32]
    counts: NDArray[np.int64]
    starts: NDArray[np.int64]
    number: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Writes a structured array of `gram` int32[n] and `count` int64."""
        rows = np.empty(len(self.counts), dtype=[("gram", np.int32, (self.grams.shape[1],)), ("count", np.int64)])
        rows["gram"], rows["count"] = self.grams, self.counts
        np.save(path, rows)


def count_ngrams(ids_T: NDArray[np.int32], offsets: NDArray[np.int64], longest: int) -> list[Order]:
    """Exact counts of the n-grams inside passages, for n = 1..`longest`; entry n - 1 of the list has length n.

    An n-gram is coded as (the number of its first n - 1 tokens, its last token), one int64, so that one sort an order
    counts them, and numbers follow the order of the tokens.
    """
    vocabulary, last_T = np.unique(np.asarray(ids_T), return_inverse=True)
    left_T = np.repeat(offsets[1:], np.diff(offsets)) - np.arange(len(ids_T))
    orders: list[Order] = []
    prefix_T = np.zeros(len(ids_T), dtype=np.int64)
    for n in range(1, longest + 1):
        starts = np.flatnonzero(left_T >= n)
        codes = prefix_T[starts] * len(vocabulary) + last_T[starts + n - 1]
        _, first, number, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
        grams = np.asarray(ids_T)[starts[first][:, None] + np.arange(n)].astype(np.int32)
        orders.append(Order(grams, counts.astype(np.int64), starts, number))
        prefix_T[starts] = number
    return orders


def pmi(orders: list[Order]) -> list[NDArray[np.float64]]:
    """The PMI of every distinct n-gram, float64 [G], aligned with `orders[n - 1].grams` (003 eq. 7; 0 for n = 1)."""
    unigrams = orders[0]
    tokens = unigrams.grams[:, 0]
    log_token = np.log(unigrams.counts / max(1, unigrams.counts.sum()))
    values = []
    for order in orders:
        log_gram = np.log(order.counts / max(1, order.counts.sum()))
        values.append(log_gram - log_token[np.searchsorted(tokens, order.grams)].sum(axis=1))
    return values


def average_mutual_information(orders: list[Order], edges: str = "equation") -> NDArray[np.float32]:
    """The importance of every token, float32 [T] (003 eq. 8), with the window L = `len(orders)`."""
    assert edges in EDGES, edges
    assert len(orders) >= 2, "eq. 8 needs a window of at least 2"
    size = len(orders[0].starts)
    sums = np.zeros((2, size))
    terms = np.zeros((2, size))
    for n, (order, values) in enumerate(zip(orders, pmi(orders)), start=1):
        if n == 1:
            continue
        here = values[order.number]
        for side, positions in enumerate((order.starts + n - 1, order.starts)):
            sums[side, positions] += here
            terms[side, positions] += 1
    divisor = np.maximum(terms, 1) if edges == "present" else len(orders) - 1
    return (sums / divisor).sum(axis=0).astype(np.float32)
