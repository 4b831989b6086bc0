"""Computes batches in parallel on a CPU's cores, one thread per batch.

An operation on a batch is too short to be shared well: two threads with a batch each score pairs 1.3 times as fast as
two threads that share every batch. On a GPU, or with one thread, batches are computed one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

from stillhouse.models.acceleration.precision import autocast

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def threads_of(device: torch.device) -> int:
    """How many batches are computed at the same time on the device."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def side_by_side(
    batches: Iterable[Batch], compute: Callable[[Batch], Result], precision: str, device: torch.device
) -> Iterator[tuple[Batch, Result]]:
    """Yield every batch with its result, in order, computed without gradients in the setting `precision`.

    At most twice as many batches are in flight as there are threads. Exceptions of `compute` are raised here.
    """

    def alone(batch: Batch) -> Result:
        # Both are thread-local, so the settings around the loop do not apply here.
        with torch.inference_mode(), autocast(precision, device):
            return compute(batch)

    threads = threads_of(device)
    if threads == 1:
        yield from ((batch, alone(batch)) for batch in batches)
        return
    pool = ThreadPoolExecutor(threads, "batch", initializer=partial(torch.set_num_threads, 1))
    under_way: deque[tuple[Batch, Future[Result]]] = deque()
    try:
        for batch in batches:
            under_way.append((batch, pool.submit(alone, batch)))
            if len(under_way) >= 2 * threads:
                first, future = under_way.popleft()
                yield first, future.result()
        for first, future in under_way:
            yield first, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(threads)  # the setting of a thread also changes that of the libraries
