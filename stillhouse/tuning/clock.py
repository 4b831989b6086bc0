"""The time that a search counts: the processor's, so that a busy machine gives the same search."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since some moment."""


def search_clock(device: str) -> Clock:
    """Seconds of this process's processor time, divided by the threads that compute; on a GPU, seconds of the clock.

    With one thread these are the seconds of one core. `device` is "cpu" or "cuda".
    """
    if device != "cpu":
        return time.monotonic
    import torch

    threads = torch.get_num_threads()
    return lambda: time.process_time() / threads
