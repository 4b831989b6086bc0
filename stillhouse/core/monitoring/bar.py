"""Progress of counted work: a bar on a terminal or plain lines in a log, always reported to a monitor."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import Any

from tqdm import tqdm

from stillhouse.core.monitoring.activity import doing, in_words, line_was_seen, write_progress
from stillhouse.core.monitoring.monitor import Monitor
from stillhouse.core.terminal import visible

SECONDS_BETWEEN_UPDATES = 0.5


def make_bar(work: str, monitor: Monitor, total: int | None, done: int, unit: str, quiet: bool) -> LogBar | TerminalBar:
    """A bar for `work` of `total` units, `done` of which an earlier run completed; with `quiet` it shows nothing.

    It is a context manager with tqdm's `update(n)` for `n` more units and `set_postfix` for figures after the count.
    """
    if not quiet and sys.stderr.isatty():
        return TerminalBar(work, monitor, total, done, unit)
    return LogBar(work, monitor, total, done, unit, quiet)


class LogBar:
    """Writes a line at the beginning and at the end; `stillhouse.core.monitoring.activity` requests lines in between.

    A bar within another bar omits the first and the last line.
    """

    writing = 0
    """The number of bars that currently write."""

    def __init__(self, work: str, monitor: Monitor, total: int | None, done: int, unit: str, quiet: bool) -> None:
        self.work, self.monitor, self.total, self.unit = work, monitor, total, unit
        self.n = self.initial = done
        self.figures, self.began, self.shown = "", time.monotonic(), not quiet
        self.lines = self.shown and LogBar.writing == 0
        self.ending = ExitStack()
        monitor.began(work, total, done)

    def __enter__(self) -> LogBar:
        if self.shown:
            LogBar.writing += 1
            self.ending.enter_context(doing(self.work, self.line))
        if self.lines:
            known = "begins" if self.total is None else self._count(self.total)
            before = f", {self.initial:,} of them done before" if self.initial else ""
            write_progress(f"{self.work}: {known}{before}")
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.shown:
            LogBar.writing -= 1
        self.ending.close()
        self.monitor.ended(self.work)
        if self.lines and error is None:
            took = in_words(time.monotonic() - self.began)
            write_progress(f"{self.work}: {self._count(self.n)} done in {took}{self.figures}")

    def update(self, n: int = 1) -> None:
        self.n += n
        self.monitor.advanced(self.work, n)

    def set_postfix(self, **values: str) -> None:
        self.figures = "".join(f", {name} {value}" for name, value in values.items())

    def line(self) -> str:
        """The progress: 120 of 400 steps (30 %), …"""
        seconds, done = time.monotonic() - self.began, self.n - self.initial
        if self.total is None:
            return f"{self.work}: {self._count(self.n)} in {in_words(seconds)}{self.figures}"
        left = f", about {in_words(seconds / done * (self.total - self.n))} left" if done else ""
        share = f" ({100 * self.n // self.total} %)" if self.total else ""
        far = f"{self.work}: {self.n:,} of {self._count(self.total)}{share}"
        return f"{far}, {in_words(seconds)} so far{left}{self.figures}"

    def _count(self, number: int) -> str:
        if number == 1:
            return f"1 {self.unit}"
        if self.unit.endswith("y"):
            return f"{number:,} {self.unit[:-1]}ies"
        return f"{number:,} {self.unit}{'es' if self.unit.endswith('ch') else 's'}"


class TerminalBar(tqdm):
    """A tqdm bar; its movement counts as output."""

    def __init__(self, work: str, monitor: Monitor, total: int | None, done: int, unit: str) -> None:
        self.work, self.monitor, self.over, self.displayed = work, monitor, False, -1
        how = {"leave": False, "mininterval": SECONDS_BETWEEN_UPDATES}
        super().__init__(desc=visible(work), total=total, initial=done, unit=unit, **how)
        self.ending = ExitStack()
        self.ending.enter_context(doing(work))
        monitor.began(work, total, done)

    def update(self, n: float | None = 1) -> bool | None:
        self.monitor.advanced(self.work, int(n or 0))
        return super().update(n)

    def display(self, *words: Any, **how: Any) -> None:
        if self.n != self.displayed:
            self.displayed = self.n
            line_was_seen()
        super().display(*words, **how)

    def close(self) -> None:
        super().close()
        if not self.over:
            self.over = True
            self.ending.close()
            self.monitor.ended(self.work)
