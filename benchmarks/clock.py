"""Time, arithmetic and its peak, for work that a GPU may still be doing when a call returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


class Clock:
    """Seconds, after everything that was started on the device is done."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __call__(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def mark(self) -> Any:
        """A moment in the device's own work, which is not waited for."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first: Any, second: Any) -> float:
        """Seconds from one mark to another, after everything is done."""
        if self.device.type != "cuda":
            return float(second - first)
        torch.cuda.synchronize(self.device)
        return float(first.elapsed_time(second)) / 1000


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


def kernel_seconds(run: Callable[[], Any], device: torch.device) -> float:
    """The seconds that a GPU's kernels run during a call, copies and fills included; 0 without a GPU.

    Copies from and to ordinary memory, as of the weights before and after a training, do not count. A profile makes
    Python slower but not the kernels, so compare this with the time of a call without one.
    """
    if device.type != "cuda":
        run()
        return 0.0
    kernels = (event for event in kernels_of(run) if "Pageable" not in event.key)
    return float(sum(event.self_device_time_total for event in kernels)) / 1e6


def kernels_of(run: Callable[[], Any]) -> Any:
    """The profiler's figures of each kernel that a GPU runs during a call."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    return profiled.key_averages()
