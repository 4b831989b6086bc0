"""The clock of a search: it measures processor time, so that the load of the machine does not change the search."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since an arbitrary moment."""


def search_clock(device: str) -> Clock:
    """This process's processor time in seconds, divided by the number of computing threads; on a GPU, elapsed time.

    With one thread these are the seconds of one core. `device` is "cpu" or "cuda".
    """
    if device != "cpu":
        return time.monotonic
    import torch

    threads = torch.get_num_threads()
    return lambda: time.process_time() / threads
