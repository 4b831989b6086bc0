"""Prepares the next item, and writes the last one, in other threads while one is computed, so no GPU waits for Python.

Texts are read, drawn, tokenized and masked one step ahead: everything a step needs that needs no model. Results do not
change, because every item is made from its number alone.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


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

    def __enter__(self) -> Ahead[Made]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    def __enter__(self) -> Behind:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True)
        if error is None and self._last is not None:
            self._last.result()

    def __call__(self, write: Callable[..., Any], *given: Any) -> None:
        if self._last is not None:
            self._last.result()
        self._last = self._thread.submit(write, *given)
