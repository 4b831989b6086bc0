"""Makes Ctrl-C end a command within ten seconds, even in a long C function or on a busy machine.

Python raises `KeyboardInterrupt` between two of its own instructions, so a C function, the end of a thread pool or a
library that catches every exception may delay it for minutes. The system writes the signal to a pipe at once, and a
thread reads it there. If the process is still running after `GRACE` seconds, or gets the signal again, the thread kills
it. That is safe: outputs appear whole or not at all, and the next run removes unfinished files. Only a C function that
holds Python's global lock can delay the thread.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from selectors import EVENT_READ, PollSelector
from types import FrameType

from stillhouse.core.terminal import warn

GRACE = 5.0
"""Seconds from the first signal to the kill, which may itself take a while on a busy machine."""
ONE_PRESS = 0.3
"""Seconds in which further signals count as the same key press: a parent program may have passed it on."""
INTERRUPTED = 130
"""The exit code: 128 plus the signal's number, as in shells."""
SENTENCE = "stillhouse: interrupted; run the same command again to resume from the last checkpoint"


@contextmanager
def ends_soon() -> Iterator[None]:
    """While the block runs, SIGINT raises `KeyboardInterrupt` in it, and kills the process if that has no effect.

    Raises `KeyboardInterrupt` for any error that ends the block after the signal. The thread then keeps running, since
    the exit of the process may take long too. Outside the main thread, or if the signal is ignored or has another
    handler, the block just runs.
    """
    first = threading.current_thread() is threading.main_thread()
    if not first or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _interrupt)
    thread = threading.Thread(target=_end, args=(reader,), name="interrupt", daemon=True)
    thread.start()
    ended = True
    try:
        yield
    except BaseException as error:
        ended = not interrupted()
        if not ended and isinstance(error, Exception):  # a library turned it into another error
            raise KeyboardInterrupt from error
        raise
    finally:
        if ended:
            signal.set_wakeup_fd(before)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.close(writer)
            thread.join()


def interrupted() -> bool:
    """Whether this process received SIGINT within `ends_soon`."""
    return signal.getsignal(signal.SIGINT) is _again


def exit_code() -> int:
    """Reports the interruption once and returns the exit code of an interrupted process."""
    if interrupted():
        _say_once()
    else:  # not by a signal, as in a test
        warn(SENTENCE)
    return INTERRUPTED


_said = threading.Lock()


def _say_once() -> None:
    """Writes past Python's buffers, since a blocked thread may hold their locks."""
    if _said.acquire(blocking=False):
        with suppress(OSError, ValueError):
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{SENTENCE}\n".encode())


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, _again)
    raise KeyboardInterrupt


def _again(number: int, frame: FrameType | None) -> None:
    """Does nothing, so that a second signal does not disturb an orderly exit; only the thread reacts to it."""


def _end(reader: int) -> None:
    """Kills the process `GRACE` seconds after the first SIGINT, or at the next one; returns when the pipe is closed."""
    first: float | None = None
    pipe = PollSelector()  # takes descriptors of any number and needs none of its own
    pipe.register(reader, EVENT_READ)
    while pipe.select(None if first is None else max(0.0, first + GRACE - time.monotonic())):
        numbers = os.read(reader, 64)
        if not numbers:
            os.close(reader)
            return
        if signal.SIGINT not in numbers:
            continue
        if first is None:
            first = time.monotonic()
        elif time.monotonic() - first > ONE_PRESS:
            break
    _say_once()
    # Processes that Python's multiprocessing started would keep running.
    if "multiprocessing" in sys.modules:
        for child in sys.modules["multiprocessing"].active_children():
            child.kill()
    os._exit(INTERRUPTED)
