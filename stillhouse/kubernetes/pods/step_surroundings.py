"""What a step finds in a process that runs several: the labels of its own metrics, and free memory."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from stillhouse.monitoring.settings import TASK


@contextmanager
def labelled(use: str) -> Iterator[None]:
    """Labels the step's Prometheus metrics with the name of its use, also in processes that it starts."""
    before = os.environ.get(TASK)
    os.environ[TASK] = use
    try:
        yield
    finally:
        if before is None:
            del os.environ[TASK]
        else:
            os.environ[TASK] = before


def free_memory() -> None:
    """Frees a step's memory, as the end of its process would: the next step may need the whole GPU."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
