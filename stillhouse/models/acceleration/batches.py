"""Batches ahead of time, and several at a time, so that no device waits for Python.

The next item is prepared, and the last one written, in other threads while one is computed. Texts are read, drawn,
tokenized and masked one step ahead: everything a step needs that needs no model. Results do not change, because every
item is made from its number alone.

On a CPU, batches are computed in parallel, one thread per batch. An operation on a batch is too short to be shared
well: two threads with a batch each score pairs 1.3 times as fast as two threads that share every batch. On a GPU, or
with one thread, batches are computed one after the other.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, Self, TypeVar

import torch

from stillhouse.models.acceleration.device import autocast

Made = TypeVar("Made")
Batch = TypeVar("Batch")
Result = TypeVar("Result")


class Ahead(Generic[Made]):
    """`ahead(number)` is `make(number)`, which another thread starts when the previous number is requested.

    Numbers are below `end`. One item is made at a time, and at most one waits. Any number may be requested. Exceptions
    of `make` are raised when its number is requested. Use it as a context manager, which waits for the thread.
    """

    def __init__(self, make: Callable[[int], Made], end: int) -> None:
        self._make = make
        self._end = end
        self._next: dict[int, Future[Made]] = {}
        self._thread = ThreadPoolExecutor(1, "ahead")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def __call__(self, number: int) -> Made:
        made = self._next.pop(number, None) or self._thread.submit(self._make, number)
        self._next.clear()
        if number + 1 < self._end:
            self._next[number + 1] = self._thread.submit(self._make, number + 1)
        return made.result()


class Behind:
    """`behind(write, ...)` calls `write(...)` in another thread, after the previous call has ended.

    So at most one item waits to be written. An exception of `write` is raised by the next call, or at the end. Use it
    as a context manager, which waits for the thread.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "behind")
        self._last: Future[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._thread.shutdown(wait=True)
        if error is None and self._last is not None:
            self._last.result()

    def __call__(self, write: Callable[..., Any], *given: Any) -> None:
        if self._last is not None:
            self._last.result()
        self._last = self._thread.submit(write, *given)


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
