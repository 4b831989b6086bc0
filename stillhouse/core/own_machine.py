"""The cores and the memory that this process may use: those of the machine, or fewer in a container.

Control groups limit a container. Version 2 of the kernel's interface has one tree of groups, version 1 has a tree for
each controller. A process's own group may have no limit where one above it has.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def own_cores() -> int:
    """The number of cores that this process may use, at least 1; a limit of 1.5 cores counts as 2."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [cores]
    for group in _groups("cpu"):
        for words in (_words(group / "cpu.max"), _words(group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us")):
            with suppress(ValueError):  # no such file, or the word `max`
                quota, period = map(int, words)
                if quota > 0:  # version 1 says -1 for no limit
                    limits.append(math.ceil(quota / period))
    return max(1, min(limits))


def own_memory() -> int:
    """The bytes of memory that this process may use."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group in _groups("memory"):
        for words in (_words(group / "memory.max"), _words(group / "memory.limit_in_bytes")):
            with suppress(ValueError):
                [limit] = map(int, words)
                limits.append(limit)
    return min(limits)


def _groups(controller: str) -> Iterator[Path]:
    """The folders of this process's groups that may limit what a controller controls, up to the root."""
    with suppress(OSError):  # not Linux
        for line in MEMBERSHIP.read_text(encoding="utf-8").splitlines():
            number, controllers, name = line.split(":", 2)
            if number == "0":
                root = GROUPS
            elif controller in controllers.split(","):
                root = GROUPS / controller
            else:
                continue
            # A container may see the name that its group has outside, of which only the root is there.
            own = root if ".." in name else root / name.lstrip("/")
            yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(root))


def _words(*paths: Path) -> list[str]:
    """The words of some files; none for a file that is not there."""
    found: list[str] = []
    for path in paths:
        with suppress(OSError):
            found += path.read_text(encoding="ascii").split()
    return found
