"""Exact search by inner product over blocks of vectors that are read once, with a running top K.

A candidate is one integer with the score in the high bits and the row in the low bits. Smaller is better, so ties are
in corpus order, even at the last rank. Shape suffixes: Q queries, B vectors of a block, K depth, D width.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from stillhouse.acceleration.linear_layers import can_pack

QUERIES_AT_ONCE = 128
BLOCK = 32_768
"""Vectors compared at once: with `QUERIES_AT_ONCE` queries, 16 MiB of scores."""
EVEN = 8
"""Queries are padded to a multiple of this and vectors to at least this: a single one would be rounded differently."""
FEW = 32
"""Up to this many queries are packed in place of the vectors."""
NOTHING = np.iinfo(np.int64).max

Block = tuple[int, NDArray[np.float32]]
"""The first row of a block, and its vectors [B, D]."""


def exact_search(
    queries_QD: NDArray[np.float32], blocks: Iterable[Block], depth: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Rows int32 [Q, K] and inner products float32 [Q, K], K = `depth`, best first, ties in corpus order.

    `blocks` hold all vectors in corpus order, at least `depth` of them.
    """
    queries = len(queries_QD)
    filled_QD = filled(queries_QD, -(-queries // EVEN) * EVEN)
    best_QK = np.full((queries, depth), NOTHING, dtype=np.int64)
    for start, vectors_BD in blocks:
        size = len(vectors_BD)
        vectors_BD = filled(np.require(vectors_BD, dtype=np.float32, requirements=("C", "W")), max(size, EVEN))
        for first in range(0, queries, QUERIES_AT_ONCE):
            part = slice(first, first + QUERIES_AT_ONCE)
            known_QK, scores_QB = best_QK[part], inner_products(filled_QD[part], vectors_BD)
            best_QK[part] = merged(known_QK, scores_QB[: len(known_QK), :size], start)
    assert not queries or not depth or (best_QK != NOTHING).all(), "fewer vectors than the depth"
    return unpacked(best_QK)


def filled(vectors_BD: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Vectors padded with zeros to `size` rows."""
    if len(vectors_BD) == size:
        return vectors_BD
    result = np.zeros((size, vectors_BD.shape[1]), dtype=np.float32)
    result[: len(vectors_BD)] = vectors_BD
    return result


def inner_products(queries_QD: NDArray[np.float32], vectors_BD: NDArray[np.float32]) -> NDArray[np.float32]:
    """Float32 [Q, B]. Equal vectors have equal products at every position, which NumPy's OpenBLAS does not ensure."""
    queries, vectors = torch.from_numpy(queries_QD), torch.from_numpy(vectors_BD)
    if can_pack(torch.float32, queries.device):  # oneDNN takes unpacked vectors too
        # It packs the right side first, so few queries go there. This changes no product.
        few = len(queries) <= FEW
        left, right = (vectors, queries) if few else (queries, vectors)
        products = torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")
        products = products.T if few else products
    else:
        with torch.autocast("cpu", enabled=False):  # a model that answers single queries may have turned it on
            products = queries @ vectors.T
    result: NDArray[np.float32] = products.numpy()
    return result


def merged(best_QK: NDArray[np.int64], scores_QB: NDArray[np.float32], start: int) -> NDArray[np.int64]:
    """The best K candidates of those so far and of a block that starts at row `start`."""
    depth, size = best_QK.shape[1], scores_QB.shape[1]
    if not depth:
        return best_QK
    # Later rows lose ties, so a full ranking takes only what is better than its last entry.
    full = bool((best_QK[:, -1] != NOTHING).all())
    if full:
        taken_QB = scores_QB > unpacked(best_QK[:, -1:])[1]
    elif size > depth:
        taken_QB = scores_QB >= np.partition(scores_QB, size - depth, axis=1)[:, size - depth, None]
    else:
        taken_QB = np.ones(scores_QB.shape, dtype=bool)
    query, column = np.nonzero(taken_QB)
    if not len(query):
        return best_QK
    counts_Q = np.bincount(query, minlength=len(best_QK))
    place = np.arange(len(query)) - np.repeat(np.cumsum(counts_Q) - counts_Q, counts_Q)
    new_QC = np.full((len(best_QK), int(counts_Q.max())), NOTHING, dtype=np.int64)
    new_QC[query, place] = packed(scores_QB[query, column], (column + start).astype(np.int32))
    together = np.concatenate([best_QK, new_QC], axis=1)
    together.sort(axis=1)
    return together[:, :depth]


def packed(scores: NDArray[np.float32], rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Pack a score, which is not NaN, and a row into one integer; better scores and earlier rows give smaller ones."""
    bits = (scores + np.float32(0)).view(np.int32)  # -0 becomes 0, its equal
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    result: NDArray[np.int64] = ((~rising).astype(np.int64) << 32) | rows
    return result


def unpacked(keys: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The rows and scores of `packed`."""
    rising = ~(keys >> 32).astype(np.int32)
    bits = rising ^ ((rising >> 31) & 0x7FFFFFFF)
    return (keys & 0xFFFFFFFF).astype(np.int32), bits.view(np.float32)
