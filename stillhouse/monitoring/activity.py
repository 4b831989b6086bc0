"""What a process is doing, written to the log whenever it has been silent for some seconds.

Code names its work where it does it, and knows nothing of the log:

    with doing("building the index"):
        ...

    @doing("reading the corpus")
    def open_corpus(...): ...

Within `watched`, a thread writes a line about the innermost work each time nothing else was written for `SILENCE`
seconds. So there is no silent work, also none that nobody has named. Outside `watched`, `doing` costs nothing and
writes nothing. A C function that keeps Python's lock delays the line until it lets go.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TextIO

from stillhouse.monitoring.duration import in_words
from stillhouse.terminal import message_lines, print_lines

SILENCE = 9.0
"""Seconds without a line after which one is written: less than ten, as a busy machine may write it late."""


@dataclass(eq=False)
class Work:
    """A piece of work: "reading the corpus". `how_far` describes a counted one instead."""

    what: str
    how_far: Callable[[], str] | None = None
    began: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        if self.how_far:
            return self.how_far()
        return f"still {self.what} ({in_words(time.monotonic() - self.began)})"


class _Watch:
    """The works of the thread that began it, and the thread that writes about them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stream = sys.stderr  # a library may replace it for a while, to hide what another one writes
        self.owner = threading.get_ident()
        self.works = [Work("at work")]
        self.last = time.monotonic()
        self.changed = threading.Condition()
        self.over = False
        self.thread = threading.Thread(target=self._run, name="activity", daemon=True)

    def _run(self) -> None:
        with self.changed:
            while not self.over:
                wait = self.last + SILENCE - time.monotonic()
                if wait > 0:
                    self.changed.wait(wait)
                    continue
                line = f"[{self.name}] {self.works[-1]}"
                self.last = time.monotonic()
                self.changed.release()  # whoever reads the log may be slow
                try:
                    with suppress(OSError, ValueError):  # nobody reads it any more
                        _write(line, self.stream)
                finally:
                    self.changed.acquire()

    def end(self) -> None:
        with self.changed:
            self.over = True
            self.changed.notify()
        self.thread.join(timeout=1)


_watch: _Watch | None = None


@contextmanager
def watched(name: str, quiet: bool = False) -> Iterator[None]:
    """While the block runs, a line follows every `SILENCE` seconds of silence; its lines begin with [name].

    Within another watch, and where it is `quiet`, the block just runs.
    """
    global _watch
    if quiet or _watch is not None:
        yield
        return
    _watch = _Watch(name)
    _watch.thread.start()
    try:
        yield
    finally:
        ended, _watch = _watch, None
        ended.end()


@contextmanager
def doing(what: str, how_far: Callable[[], str] | None = None) -> Iterator[None]:
    """Names what the block does, as in "reading the corpus". Works of other threads than the watched one are left out.

    `how_far` returns a line about work that is counted, which is written in place of that.
    """
    watch = _watch
    if watch is None or watch.owner != threading.get_ident():
        yield
        return
    work = Work(what, how_far)
    watch.works.append(work)
    try:
        yield
    finally:
        watch.works.remove(work)


def write_line(line: str) -> None:
    """Writes a line to the log, above the bars of a terminal."""
    _write(line, sys.stderr)
    line_was_seen()


def write_progress(line: str) -> None:
    """Writes a line about the work of the watched step, which it names."""
    write_line(f"[{_watch.name}] {line}" if _watch else line)


def line_was_seen() -> None:
    """The log, or a bar on a terminal, has just changed: there is no silence."""
    if _watch is not None:
        _watch.last = time.monotonic()


def _write(line: str, stream: TextIO) -> None:
    lines = message_lines(line)
    # Another thread may be importing it just now.
    bars = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if bars is not None and stream.isatty():
        for each in lines:
            bars.write(each, file=stream)
    else:
        print_lines(stream, lines)
