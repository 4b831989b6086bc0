"""Work with a time limit, so that a remote or a name server that does not answer cannot hold up a step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """Returns or raises what `work` does. Raises `TimeoutError` if it takes longer, and abandons it to its thread."""
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
