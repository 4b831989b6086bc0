"""The run cache in the work area: its size limit, and what is deleted when it is full.

Checkpoints share the volume and matter more, so the folder has a limit and leaves a tenth of the volume free. The least
recently used files make room for new ones. DVC's remotes elsewhere belong to others: nothing is deleted there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stillhouse.context import work_root
from stillhouse.errors import InputError

FOLDER = "run-cache"
LIMIT = "STILLHOUSE_RUN_CACHE_GIB"
"""Environment variable with the size limit of the run cache in the work area, in GiB."""
DEFAULT_LIMIT = 10.0
LEFT_ALONE = 0.1
"""The share of the volume that stays free."""
GIB = 1024**3


class NoRoom(Exception):
    """The new files do not fit, even if all others are removed."""


@dataclass(frozen=True)
class CacheFolder:
    """The run cache at `path`, with at most `limit` bytes."""

    path: Path
    limit: int

    def make_room(self, needed: int) -> None:
        """Removes the least recently used files until `needed` more bytes fit. Raises `NoRoom` if they never will."""
        self.path.mkdir(parents=True, exist_ok=True)
        # The entries of stages are small, and only their data is marked as used; without data they are passed over.
        files = sorted(self._files(), key=lambda file: (self.path / "runs" in file[2].parents, *file))
        held = sum(size for _, size, _ in files)
        disk = shutil.disk_usage(self.path)
        most = min(self.limit, held + disk.free - int(LEFT_ALONE * disk.total))
        if needed > most:
            raise NoRoom(
                f"it has {needed / GIB:.1f} GiB, and the run cache may use {max(most, 0) / GIB:.1f} GiB of the volume "
                f"(${LIMIT}; a tenth of the volume stays free)"
            )
        for _, size, path in files:
            if held + needed <= most:
                break
            path.unlink(missing_ok=True)  # another pod may make room too
            held -= size

    def use(self, digests: Iterable[str]) -> None:
        """Marks files as used, by their digests, so that they are kept longer."""
        for digest in digests:
            path = self.path / "files" / "md5" / digest[:2] / digest[2:]
            if path.exists():
                os.utime(path)

    def _files(self) -> Iterable[tuple[float, int, Path]]:
        """Each file's modification time, size in bytes, and path."""
        for path in self.path.rglob("*"):
            try:
                status = path.stat()
            except FileNotFoundError:  # removed by another pod
                continue
            if path.is_file():
                yield status.st_mtime, status.st_size, path


def own_cache(address: str, environment: Mapping[str, str] = os.environ) -> CacheFolder | None:
    """The run cache at `address` if it is the work area's own; None for any other folder and for a remote."""
    if "://" in address or Path(address).resolve() != (work_root() / FOLDER).resolve():
        return None
    text = environment.get(LIMIT) or str(DEFAULT_LIMIT)
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < float("inf"):
        raise InputError(f"${LIMIT} is {text!r}; give a number of GiB, such as 10")
    return CacheFolder(Path(address), int(limit * GIB))


def bytes_of(folders: Iterable[Path]) -> int:
    """The total size of the files in folders, in bytes."""
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
