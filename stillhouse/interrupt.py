"""Ctrl-C ends a command within ten seconds, also in a long C function and on a busy machine.

Python raises `KeyboardInterrupt` between two of its own instructions, so a C function, the end of a thread pool or a
library that catches everything may hold it up for minutes. The system hands the signal to a pipe at once; a thread
reads it there and, when the process is still there after `GRACE` seconds or gets the signal again, ends it the hard
way. That is as safe as a kill: outputs appear whole or not at all, and the next run removes what is unfinished. Only a
C function that keeps Python's lock is out of the thread's reach until it lets go.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from select import select
from types import FrameType

from stillhouse.terminal import warn

GRACE = 5.0
"""Seconds from the first signal to the hard end, which may itself take some on a busy machine."""
ONE_PRESS = 0.3
"""Seconds in which further signals are the same key press: a program in between may have passed it on."""
INTERRUPTED = 130
"""The exit code: 128 and the number of the signal, as of shells."""
SENTENCE = "stillhouse: interrupted; the same command goes on from the last checkpoint"


@contextmanager
def ends_soon() -> Iterator[None]:
    """While the block runs, SIGINT raises `KeyboardInterrupt` in it and ends the process if that comes to nothing.

    Raises `KeyboardInterrupt` for any error that ends the block after the signal. The thread then stays at work, as the
    process's own end may take long too. In other threads than the first, and where the signal is ignored or somebody
    else's, the block just runs.
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
        if not ended and isinstance(error, Exception):  # a library made something else of it
            raise KeyboardInterrupt from error
        raise
    finally:
        if ended:
            signal.set_wakeup_fd(before)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.close(writer)
            thread.join()


def interrupted() -> bool:
    """Whether this process got SIGINT within `ends_soon`."""
    return signal.getsignal(signal.SIGINT) is _again


def exit_code() -> int:
    """Says that it was interrupted, unless that was said, and returns the exit code of a process that was."""
    if interrupted():
        _say_once()
    else:  # not by a signal, as in a test
        warn(SENTENCE)
    return INTERRUPTED


_said = threading.Lock()


def _say_once() -> None:
    """Writes past Python's buffers, whose locks a thread that is held up may have."""
    if _said.acquire(blocking=False):
        with suppress(OSError, ValueError):
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{SENTENCE}\n".encode())


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, _again)
    raise KeyboardInterrupt


def _again(number: int, frame: FrameType | None) -> None:
    """Does nothing, so that a second signal does not disturb an orderly end: it is for the thread alone."""


def _end(reader: int) -> None:
    """Ends the process `GRACE` seconds after the first SIGINT or at the next one; returns when the pipe is closed."""
    first: float | None = None
    while select([reader], [], [], None if first is None else max(0.0, first + GRACE - time.monotonic()))[0]:
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
    # Those that Python's multiprocessing started would work on.
    if "multiprocessing" in sys.modules:
        for child in sys.modules["multiprocessing"].active_children():
            child.kill()
    os._exit(INTERRUPTED)
