"""Exact search by inner product over blocks of vectors that are read once, with a running top K.

A candidate is one integer with the score in the high bits and the row in the low bits. Smaller is better, so ties are
in corpus order, even at the last rank.

On a GPU, PyTorch computes the same rankings up to the last bits of a product, for any depth and any number of vectors,
in full fp32, not TF32.

Shape suffixes: Q queries, B vectors of a block, K depth, D width.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.models.acceleration.replaced import EVEN, can_pack

QUERIES_AT_ONCE = 128
BLOCK = 32_768
"""Vectors compared at once: with `QUERIES_AT_ONCE` queries, 16 MiB of scores."""
FEW = 32
"""Up to this many queries are packed in place of the vectors."""
NOTHING = np.iinfo(np.int64).max

Block = tuple[int, NDArray[np.float32]]
"""The first row of a block, and its vectors [B, D]."""
GPU_QUERIES = 1024
GPU_BLOCK = 131_072
"""Vectors compared at once: with `GPU_QUERIES` queries, 512 MiB of scores. Large blocks need few merges."""
BESIDE = 4 << 30
"""Bytes of GPU memory that a search reserves for scores and candidates."""
BlockOnGpu = tuple[int, Tensor]
"""The first row of a block, and its vectors float32 [B, D] on the GPU."""


def exact_search(
    queries_QD: NDArray[np.float32], blocks: Iterable[Block], depth: int, among_N: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Rows int32 [Q, K] and inner products float32 [Q, K], K = `depth`, best first, ties in corpus order.

    `blocks` hold all vectors in corpus order. At least `depth` of them are among the ones that can be found: those that
    are true in `among_N`, or all.
    """
    queries = len(queries_QD)
    filled_QD = filled(queries_QD, -(-queries // EVEN) * EVEN)
    best_QK = torch.full((queries, depth), NOTHING, dtype=torch.int64)
    for start, vectors_BD in blocks:
        size = len(vectors_BD)
        vectors_BD = filled(np.require(vectors_BD, dtype=np.float32, requirements=("C", "W")), max(size, EVEN))
        for first in range(0, queries, QUERIES_AT_ONCE):
            part = slice(first, first + QUERIES_AT_ONCE)
            known_QK = best_QK[part]
            scores_QB = torch.from_numpy(inner_products(filled_QD[part], vectors_BD))
            if among_N is not None:
                scores_QB[:, :size].masked_fill_(torch.from_numpy(~among_N[start : start + size]), -torch.inf)
            best_QK[part] = merged(known_QK, scores_QB[: len(known_QK), :size], start)
    assert not best_QK.numel() or bool((best_QK != NOTHING).all()), "fewer vectors than the depth"
    rows_QK, scores_QK = unpacked(best_QK)
    return rows_QK.numpy(), scores_QK.numpy()


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
    return products.numpy()


def merged(best_QK: Tensor, scores_QB: Tensor, start: int) -> Tensor:
    """The best K candidates of those so far and of a block that starts at row `start`, int64 [Q, K]; on any device."""
    (queries, depth), size = best_QK.shape, scores_QB.shape[1]
    if not depth:
        return best_QK
    # Later rows lose ties, so a full ranking takes only what is better than its last entry.
    if bool((best_QK[:, -1] != NOTHING).all()):
        taken_QB = scores_QB > unpacked(best_QK[:, -1:])[1]
    elif size > depth:
        taken_QB = scores_QB >= _last_of_best(scores_QB, depth)
    else:
        taken_QB = torch.ones_like(scores_QB, dtype=torch.bool)
    query_C, column_C = taken_QB.nonzero(as_tuple=True)
    if not len(query_C):
        return best_QK
    counts_Q = torch.bincount(query_C, minlength=queries)
    before_Q = counts_Q.cumsum(0) - counts_Q
    place_C = torch.arange(len(query_C), device=query_C.device) - before_Q[query_C]
    new = torch.full((queries, int(counts_Q.max())), NOTHING, dtype=torch.int64, device=best_QK.device)
    new[query_C, place_C] = packed(scores_QB[query_C, column_C], column_C + start)
    together = torch.cat([best_QK, new], dim=1)
    if together.is_cuda:
        return together.sort(dim=1).values[:, :depth]
    together.numpy().sort(axis=1)  # half as fast again as PyTorch's
    return together[:, :depth]


def _last_of_best(scores_QB: Tensor, depth: int) -> Tensor:
    """The score of each query's `depth`-th best vector, [Q, 1]."""
    if scores_QB.is_cuda:
        return scores_QB.topk(depth, dim=1).values[:, -1:]
    place = scores_QB.shape[1] - depth
    return torch.from_numpy(np.partition(scores_QB.numpy(), place, axis=1)[:, place, None])


def packed(scores: Tensor, rows: Tensor) -> Tensor:
    """Pack a score, which is not NaN, and a row into one integer; better scores and earlier rows give smaller ones."""
    bits = (scores + 0.0).view(torch.int32)  # -0 becomes 0, its equal
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return ((~rising).to(torch.int64) << 32) | rows


def unpacked(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The rows int32 and scores float32 of `packed`."""
    rising = ~(keys >> 32).to(torch.int32)
    bits = rising ^ ((rising >> 31) & 0x7FFFFFFF)
    return (keys & 0xFFFFFFFF).to(torch.int32), bits.view(torch.float32)


def gpu_search(
    queries_QD: NDArray[np.float32], blocks: Iterable[BlockOnGpu], depth: int, device: torch.device
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Rows int32 [Q, K] and inner products float32 [Q, K], K = `depth`, best first, ties in corpus order.

    `blocks` hold all vectors in corpus order, at least `depth` of them.
    """
    with torch.inference_mode(), full_precision(device):
        queries = torch.from_numpy(np.ascontiguousarray(queries_QD, dtype=np.float32)).to(device)
        best_QK = torch.full((len(queries), depth), NOTHING, dtype=torch.int64, device=device)
        for start, vectors_BD in blocks if depth else ():
            for first in range(0, len(queries), GPU_QUERIES):
                part = slice(first, first + GPU_QUERIES)
                best_QK[part] = merged(best_QK[part], queries[part] @ vectors_BD.T, start)
        assert not best_QK.numel() or bool((best_QK != NOTHING).all()), "fewer vectors than the depth"
        rows_QK, scores_QK = (part.cpu().numpy() for part in unpacked(best_QK))
    return rows_QK, scores_QK


def on_gpu(vectors_ND: NDArray[np.float32], device: torch.device) -> Tensor | NDArray[np.float32]:
    """Copy a file's vectors to the GPU, float32 [N, D]; return them unchanged if a search would not fit as well."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else vectors_ND.nbytes + BESIDE
    if vectors_ND.nbytes + BESIDE > free:
        return vectors_ND
    all_ND = torch.empty(vectors_ND.shape, dtype=torch.float32, device=device)
    for start, vectors_BD in blocks_of(vectors_ND, device):
        all_ND[start : start + len(vectors_BD)] = vectors_BD
    return all_ND


def blocks_of(vectors_ND: NDArray[np.float32] | Tensor, device: torch.device) -> Iterator[BlockOnGpu]:
    """The vectors of a file, copied to the GPU block by block, or of a tensor on the GPU."""
    for start in range(0, len(vectors_ND), GPU_BLOCK):
        part = vectors_ND[start : start + GPU_BLOCK]
        yield start, part if isinstance(part, Tensor) else torch.from_numpy(np.array(part, np.float32)).to(device)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Compute products of fp32 matrices without TF32 and autocast until the block ends."""
    restore = _without_tf32()
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        restore()


def _without_tf32() -> Callable[[], None]:
    """Turn TF32 off, and return what restores the setting by the same name that it was made with."""
    matmul = torch.backends.cuda.matmul
    kept = matmul.fp32_precision
    try:
        allowed = matmul.allow_tf32
    except RuntimeError:  # it was set by `fp32_precision`, and then PyTorch refuses to read it by its former name
        matmul.fp32_precision = "ieee"
        return lambda: setattr(matmul, "fp32_precision", kept)
    if not allowed:
        return lambda: None
    precision = torch.get_float32_matmul_precision()
    matmul.allow_tf32 = False

    def restore() -> None:
        matmul.allow_tf32 = True
        if precision == "medium":  # the flag alone means "high"
            torch.set_float32_matmul_precision(precision)

    return restore
