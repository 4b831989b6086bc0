"""Memory between batches: the next batch reuses what the previous one frees."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1
"""Options of glibc's mallopt; the defaults are 65,536 blocks and 128 KiB."""

_lock = threading.Lock()
_blocks = 0
"""The number of open `freed_memory_kept` blocks, which may be nested."""


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Let glibc keep freed memory for the next batch until the block ends; without glibc nothing changes.

    By default glibc maps every allocation of 32 MiB or more anew, and the system fills each page with zeros on first
    use. For the gradients of the word embeddings this took 11 to 13 % of every training step on the CPU, and for the
    states of the widest layer 14 % of every encoded batch. When the block ends, the kept memory is released, because
    later work in the same process would add to it.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        yield
        return
    _count(library, 1)
    try:
        yield
    finally:
        _count(library, -1)


def _count(library: ctypes.CDLL, change: int) -> None:
    """Count a block that begins or ends; the first to begin and the last to end call glibc."""
    global _blocks
    with _lock:
        before, _blocks = _blocks, _blocks + change
        if not before:
            library.mallopt(M_MMAP_MAX, 0)
            library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        elif not _blocks:
            library.mallopt(M_MMAP_MAX, 65_536)
            library.mallopt(M_TRIM_THRESHOLD, 128 * 1024)
            library.malloc_trim(0)
