"""A clock for work that a GPU may still be doing when a call returns."""

from __future__ import annotations

import time

import torch


class Clock:
    """Seconds, after everything that was started on the device is done."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __call__(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
