"""Work that may not hold a step up for long: a remote or a name server that does not answer is left to itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns or raises; `TimeoutError` when it takes longer, and is left to itself."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return done.result(timeout=seconds)
    except TimeoutError:
        if done.done():
            raise
        raise TimeoutError(f"no answer in {seconds:g} s") from None
