"""What comes next is made in another thread while what is there is computed, so that no GPU waits for Python.

Texts are read, drawn, tokenized and masked one step ahead: all that a step needs and that needs no model. Nothing of
the results changes, as everything is made from its number alone.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Ahead(Generic[Made]):
    """`ahead(number)` is `make(number)`, which another thread has begun when the number before was asked for.

    Numbers end before `end`; one at a time is made, and at most one waits. Other than the next number may be asked for.
    What `make` raises is raised where its number is asked for. Use it as a context, whose end waits for the thread.
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
