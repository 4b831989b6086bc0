"""Token importance of CDMAE §3.2: pointwise mutual information of n-grams, averaged at every token.

Choices where the paper is not specific:

* PMI of more than two tokens (eq. 7 has two): log p(w_1..n) - sum_i log p(w_i), the n-gram against its single tokens.
* p of an n-gram: its count over the number of all n-grams of the same n in the corpus.
* Words or word pieces: word pieces, as the model reads them.
* Borders: an n-gram never crosses a passage border. At the edges of a passage some terms of eq. 8 do not exist. They
  count as 0, so that a passage's first and last tokens count as less important. Eq. 8 is as printed: the sum, not the
  mean, of the two averages.
* Rare n-grams: by default none is dropped or smoothed, so tokens of n-grams that occur once score high. An n-gram of
  n >= 2 that was pruned or never counted has PMI 0, as if its tokens co-occurred by chance.

Shape suffixes: T tokens of a block of whole passages, L the window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stillhouse.pretraining.ngram_merge import Memory, in_order
from stillhouse.pretraining.ngram_tables import NgramTables, passage_blocks


def pmi(counts: Sequence[NDArray[np.int64]], totals: Sequence[int], min_count: int = 1) -> list[NDArray[np.float64]]:
    """The PMI of the n-gram of every length that begins at each token, float64 [T] each (CDMAE eq. 7; 0 for n = 1).

    `counts[n - 1]` int64 [T] is how often the n-gram of length n at this token occurs in the corpus, 0 if it is unknown
    or exceeds the passage; `totals[n - 1]` is the number of all n-grams of this length. N-grams of n >= 2 that occur
    less often than `min_count` are unknown.
    """
    known = [counts_T >= (min_count if n else 1) for n, counts_T in enumerate(counts)]
    log_p = [
        np.log(np.where(known_T, counts_T, max(1, total)) / max(1, total))
        for known_T, counts_T, total in zip(known, counts, totals)
    ]
    return [np.where(known_T, log_T - chance_T, 0.0) for known_T, log_T, chance_T in zip(known, log_p, _tokens(log_p))]


def _tokens(log_p: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """sum_i log p(w_i) of the n-gram at each token."""
    sums, size = [log_p[0]], len(log_p[0])
    for n in range(1, len(log_p)):
        # The value n tokens ahead; 0 at the block's end, where no n-gram begins.
        sums.append(sums[-1] + np.pad(log_p[0], (0, n))[n : n + size])
    return sums


def average_mutual_information(
    counts: Sequence[NDArray[np.int64]], totals: Sequence[int], min_count: int = 1
) -> NDArray[np.float32]:
    """The importance of every token of a block, float32 [T] (CDMAE eq. 8), with the window L = `len(counts)`.

    The arguments are as in `pmi`.
    """
    longest = len(counts)
    assert longest >= 2, "eq. 8 needs a window of at least 2"
    size = len(counts[0])
    ends_T, begins_T = np.zeros(size), np.zeros(size)
    for n, values_T in enumerate(pmi(counts, totals, min_count), start=1):
        if n == 1 or n > size:
            continue
        begins_T += values_T
        ends_T[n - 1 :] += values_T[: size - n + 1]
    return (ends_T / (longest - 1) + begins_T / (longest - 1)).astype(np.float32)


BYTES_A_TOKEN = 400
"""Memory per token while it is scored: keys, counts and rows of every length, and the sums."""


def score_tokens(
    tables: NgramTables,
    ids_T: NDArray[np.int32],
    offsets: NDArray[np.int64],
    into: NDArray[np.float32],
    memory: Memory,
    min_count: int = 1,
) -> None:
    """Write the AMI of every token of a corpus to `into` float32 [T], which may be memory-mapped, block by block."""
    totals = [order.total for order in tables.orders]

    def score(passages: tuple[int, int]) -> None:
        borders = offsets[passages[0] : passages[1] + 1]
        block = tables.block(ids_T[borders[0] : borders[-1]], borders)
        counts = tables.count_block(block)
        into[borders[0] : borders[-1]] = average_mutual_information(counts, totals, min_count)

    for _ in in_order(score, passage_blocks(offsets, memory.rows(BYTES_A_TOKEN)), memory.workers):
        pass
