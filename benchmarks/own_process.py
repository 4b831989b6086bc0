"""Measures the work of this process: seconds, memory, bytes written.

Memory is measured twice: `peak` includes the pages of mapped files, which the system reclaims when it needs them, and
`own` is memory that only this process can free.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from benchmarks.machine import memory_mib, peak_mib

LOOKED_EVERY = 0.01
"""Seconds between two looks at the memory that is the process's own, of which the kernel keeps no peak."""


class OwnMemory:
    """While it is open, the peak of memory in MiB without mapped files."""

    def __init__(self) -> None:
        self.mib = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._ended.wait(LOOKED_EVERY):
            self.mib = max(self.mib, memory_mib("RssAnon"))

    def __enter__(self) -> OwnMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.mib = max(self.mib, memory_mib("RssAnon"))


def measure(work: Callable[[], Mapping[str, Any] | None]) -> dict[str, Any]:
    """What `work` took: seconds on the clock and of the processor, MiB; and what it returns."""
    process = psutil.Process()
    written = process.io_counters().write_bytes  # unnamed and deleted files included
    with OwnMemory() as own:
        started, processor = time.perf_counter(), time.process_time()
        found = work() or {}
        seconds, processor = time.perf_counter() - started, time.process_time() - processor
    return {
        "seconds": seconds,
        "processor": processor,
        "peak": peak_mib(),
        "own": own.mib,
        "written": (process.io_counters().write_bytes - written) / 2**20,
        **found,
    }
