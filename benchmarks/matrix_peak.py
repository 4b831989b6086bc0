"""The highest rate of a machine's matrix products, with which a training's arithmetic rate is compared."""

from __future__ import annotations

import torch
from clock import Clock

SIZES = {"cpu": (512, 1024, 2048), "cuda": (2048, 4096, 8192)}
"""Of square matrices: which is fastest depends on the caches."""
TRIES = 7


def matrix_peak(dtype: torch.dtype, clock: Clock) -> float:
    """Operations a second of the fastest product of two square matrices, of some sizes and some tries each."""
    best = 0.0
    for size in SIZES[clock.device.type]:
        left, right = torch.randn(2, size, size, device=clock.device).to(dtype)
        product = torch.empty_like(left)
        for _ in range(TRIES):
            begun = clock()
            torch.matmul(left, right, out=product)
            best = max(best, 2 * size**3 / (clock() - begun))
    return best
