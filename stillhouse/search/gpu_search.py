"""Exact search by inner product on a GPU with PyTorch: any depth, ties in corpus order, any number of vectors.

It gives the rankings of `exact_search` up to the last bits of a product, with the same running top K of integers made
of a score and a row. Products are computed in full fp32, not TF32. Shape suffixes: Q queries, B vectors of a block,
K depth, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.search.exact_search import NOTHING, merged, unpacked

QUERIES_AT_ONCE = 1024
BLOCK = 131_072
"""Vectors compared at once: with `QUERIES_AT_ONCE` queries, 512 MiB of scores. Large blocks need few merges."""
BESIDE = 4 << 30
"""Bytes of GPU memory that a search reserves for scores and candidates."""

BlockOnGpu = tuple[int, Tensor]
"""The first row of a block, and its vectors float32 [B, D] on the GPU."""


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
            for first in range(0, len(queries), QUERIES_AT_ONCE):
                part = slice(first, first + QUERIES_AT_ONCE)
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
    for start in range(0, len(vectors_ND), BLOCK):
        part = vectors_ND[start : start + BLOCK]
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
