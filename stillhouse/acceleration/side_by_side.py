"""Batches that are computed side by side on a processor's cores, each by one thread.

An operation on a batch is too short to be shared well: two threads that take a batch each score pairs 1.3 times as fast
as two that share every batch. On a GPU, and with one thread, batches are computed one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

from stillhouse.acceleration.precision import autocast

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def threads_of(device: torch.device) -> int:
    """How many batches are computed at once there."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def side_by_side(
    batches: Iterable[Batch], compute: Callable[[Batch], Result], precision: str, device: torch.device
) -> Iterator[tuple[Batch, Result]]:
    """Every batch with its result, in their order, computed without gradients in a setting `precision`.

    At most twice as many batches are under way as there are threads. What `compute` raises is raised here.
    """

    def alone(batch: Batch) -> Result:
        # Either is a thread's own, so that what holds around the loop does not hold here.
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
        torch.set_num_threads(threads)  # a thread's number is that of the libraries' as well
