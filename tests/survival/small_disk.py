"""A file system of a chosen size in memory; only root can make one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = 4096
"""Files get whole pages, so that the last bytes of a file may find no room."""


@dataclass(frozen=True)
class Disk:
    """A file system of its own at `folder`."""

    folder: Path

    def resize(self, pages: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={pages * PAGE}", self.folder], check=True)

    def taken(self) -> int:
        """Return the number of pages in use."""
        about = os.statvfs(self.folder)
        return (about.f_blocks - about.f_bfree) * about.f_frsize // PAGE


@contextmanager
def mounted(folder: Path) -> Iterator[Disk]:
    """Mount a file system of a single page until the block ends. Skips the test where none can be made."""
    folder.mkdir()
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root may make a file system of a chosen size")
    command = ["mount", "-t", "tmpfs", "-o", f"size={PAGE}", "small", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system of a chosen size can be made here: {done.stderr.strip()}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
