"""Logs what a process is doing whenever it has been silent for some seconds, and puts durations into words.

Code names its work where it happens and does not need to know about the log:

    with doing("building the index"):
        ...

    @doing("reading the corpus")
    def open_corpus(...): ...

Within `watched`, a thread writes a line about the innermost work whenever nothing else was written for `SILENCE`
seconds, even if the work has no name. Outside `watched`, `doing` costs nothing and writes nothing. A C function that
holds Python's lock delays the line until it releases it.
"""

import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TextIO

from stillhouse.core.terminal import message_lines, print_lines

SHORT, SHORT_SHARE = 5.0, 0.02
"""A stage that takes fewer seconds and a smaller share of the total is not listed by name."""
WIDTH = 98
"""The characters of a line of `by_stage`."""
SILENCE = 9.0
"""Seconds of silence before a line: less than ten, because a busy machine may write it late."""
AT_WORK = "at work"
"""What the log says about unnamed work."""
ELSEWHERE = "at work in other processes"
"""Work of processes that write their own lines to the same log, so this process logs nothing about it."""


def in_words(seconds: float) -> str:
    """Seconds below 90 s, minutes below 90 min, else hours with one decimal."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def by_stage(seconds: Mapping[str, float]) -> list[str]:
    """Stages with their seconds, in the given order, as lines "ingest 8 s, distilled 3 min, 2 others 4 s".

    Only those are named that take at least `SHORT` seconds or `SHORT_SHARE` of the whole.
    """
    least = min(SHORT, SHORT_SHARE * sum(seconds.values()))
    parts = [f"{name} {in_words(each)}" for name, each in seconds.items() if each >= least]
    others = [each for each in seconds.values() if each < least]
    if others:
        parts.append(f"{len(others)} other{'s' * (len(others) > 1)} {in_words(sum(others))}")
    together = ", ".join(part.replace(" ", "\xa0") for part in parts)  # a stage and its time stay on one line
    return [line.replace("\xa0", " ") for line in textwrap.wrap(together, WIDTH, break_on_hyphens=False)]


@dataclass(eq=False)
class Work:
    """A piece of work: "reading the corpus". `how_far` describes counted work instead."""

    what: str
    how_far: Callable[[], str] | None = None
    began: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        if self.how_far:
            return self.how_far()
        return f"still {self.what} ({in_words(time.monotonic() - self.began)})"


class _Watch:
    """The work of the thread that started the watch, and the thread that logs it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stream = sys.stderr  # a library may temporarily replace it to hide another one's output
        self.owner = threading.get_ident()
        self.works = [Work(AT_WORK)]
        self.last = time.monotonic()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, name="activity", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.over.wait(max(0.0, self.last + SILENCE - time.monotonic())):
            if time.monotonic() < self.last + SILENCE:
                continue  # another line was written meanwhile
            self.last = time.monotonic()
            if self.works[-1].what != ELSEWHERE:
                with suppress(OSError, ValueError):  # the stream is closed
                    _write(f"[{self.name}] {self.works[-1]}", self.stream)

    def end(self) -> None:
        self.over.set()
        self.thread.join(timeout=1)  # whoever reads the log may be slow


_watch: _Watch | None = None


@contextmanager
def watched(name: str, quiet: bool = False) -> Iterator[None]:
    """Write a line after every `SILENCE` seconds of silence while the block runs; its lines begin with [name].

    Does nothing with `quiet`. Within another watch, that one goes on, and its lines have this name until the block
    ends: a step within `run` is named itself.
    """
    global _watch
    outer = _watch
    if quiet or (outer and outer.owner != threading.get_ident()):
        yield
    elif outer:
        before, outer.name = outer.name, name
        try:
            with doing(AT_WORK):
                yield
        finally:
            outer.name = before
    else:
        started = _watch = _Watch(name)
        try:
            yield
        finally:
            _watch = None
            started.end()


@contextmanager
def doing(what: str, how_far: Callable[[], str] | None = None) -> Iterator[None]:
    """Name what the block does, as in "reading the corpus". Ignored outside the watched thread.

    For counted work, `how_far` returns the line to write instead.
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
        if what == ELSEWHERE:  # the lines of other processes end the silence, as own lines do
            watch.last = time.monotonic()
        watch.works.remove(work)


def write_line(line: str) -> None:
    """Write a line to the log, above any bars on a terminal."""
    _write(line, sys.stderr)
    line_was_seen()


def write_progress(line: str) -> None:
    """Write a line about the work of the watched step, prefixed with its name."""
    write_line(f"[{_watch.name}] {line}" if _watch else line)


def line_was_seen() -> None:
    """Note that the log or a bar on a terminal has just changed, which ends the silence."""
    if _watch is not None:
        _watch.last = time.monotonic()


def _write(line: str, stream: TextIO) -> None:
    lines = message_lines(line)
    # Another thread may still be importing it.
    bars = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if bars is not None and stream.isatty():
        for each in lines:
            bars.write(each, file=stream)
    else:
        print_lines(stream, lines)
