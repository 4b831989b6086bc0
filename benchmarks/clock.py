"""A clock for work that a GPU may still be doing when a call returns."""

from __future__ import annotations

import time
from typing import Any

import torch


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
