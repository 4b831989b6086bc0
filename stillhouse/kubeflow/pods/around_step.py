"""What a task does around each of its steps: it labels the step's metrics, and frees its memory."""

from __future__ import annotations

import gc
import sys
from contextlib import AbstractContextManager

from stillhouse.core.environment_variables import environment_variables
from stillhouse.core.monitoring.settings import TASK


def labelled(use: str) -> AbstractContextManager[None]:
    """Labels the step's Prometheus metrics with the name of its use, also in processes that it starts."""
    return environment_variables({TASK: use})


def free_memory() -> None:
    """Frees a step's memory, as the end of its process would: the next step may need the whole GPU."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
