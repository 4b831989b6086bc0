"""The cores and the memory that this process may use: those of the machine, or fewer in a container.

Control groups (version 2 of the kernel's interface) limit a container. A process's own group may have no limit where
one above it has.
"""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def own_cores() -> int:
    """The number of cores that this process may use, at least 1; a limit of 1.5 cores counts as 2."""
    limits = [len(os.sched_getaffinity(0))]
    return max(1, min(limits + [math.ceil(quota / period) for quota, period in _limits("cpu.max")]))


def own_memory() -> int:
    """The bytes of memory that this process may use."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    return min(limits + [limit for [limit] in _limits("memory.max")])


def _limits(name: str) -> Iterator[list[int]]:
    """The numbers in the files of this name of this process's group and those above it, where there is a limit."""
    with suppress(OSError):  # no control groups
        groups = MEMBERSHIP.read_text(encoding="utf-8").splitlines()
        own = next((line.split(":", 2)[2] for line in groups if line.startswith("0:")), "/")
        # A container may see the name that its group has outside, of which only the root is there.
        folder = GROUPS if ".." in own else GROUPS / own.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(GROUPS):
                with suppress(OSError, ValueError):  # no such file, or the word `max`
                    yield [int(word) for word in (group / name).read_text(encoding="ascii").split()]
