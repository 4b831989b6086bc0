"""The run cache in the work area: how much it may take there, and what goes when it is full.

Checkpoints lie on the same volume and go before it. So the folder has a limit, and leaves the last tenth of the volume
alone; what was saved or taken longest ago is removed for what is new. DVC's remotes elsewhere are somebody's to keep:
nothing is removed there.
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
"""Environment variable that says how many GiB the run cache in the work area may hold."""
DEFAULT_LIMIT = 10.0
LEFT_ALONE = 0.1
"""The part of the volume that stays free."""
GIB = 1024**3


class NoRoom(Exception):
    """What is to be saved does not fit, whatever is removed."""


@dataclass(frozen=True)
class CacheFolder:
    """The run cache at `path`, with at most `limit` bytes."""

    path: Path
    limit: int

    def make_room(self, needed: int) -> None:
        """Removes what was used longest ago until `needed` more bytes fit. Raises `NoRoom` where they never will."""
        self.path.mkdir(parents=True, exist_ok=True)
        files = sorted(self._files())
        held = sum(size for _, size, _ in files)
        disk = shutil.disk_usage(self.path)
        most = min(self.limit, held + disk.free - int(LEFT_ALONE * disk.total))
        if needed > most:
            raise NoRoom(
                f"it has {needed / GIB:.1f} GiB, and {max(most, 0) / GIB:.1f} of the volume are for the run cache "
                f"(${LIMIT}, and a tenth of the volume stays free)"
            )
        for _, size, path in files:
            if held + needed <= most:
                break
            path.unlink(missing_ok=True)  # another pod may make room too
            held -= size

    def use(self, digests: Iterable[str]) -> None:
        """Notes that files were taken, by their digests: they are kept for longer."""
        for digest in digests:
            path = self.path / "files" / "md5" / digest[:2] / digest[2:]
            if path.exists():
                os.utime(path)

    def _files(self) -> Iterable[tuple[float, int, Path]]:
        """When each file was last used, its bytes, and its path."""
        for path in self.path.rglob("*"):
            try:
                status = path.stat()
            except FileNotFoundError:  # removed by another pod
                continue
            if path.is_file():
                yield status.st_mtime, status.st_size, path


def own_cache(address: str, environment: Mapping[str, str] = os.environ) -> CacheFolder | None:
    """The run cache at `address` where it is that of the work area; None for any other folder, and for a remote."""
    if "://" in address or Path(address).resolve() != (work_root() / FOLDER).resolve():
        return None
    text = environment.get(LIMIT) or str(DEFAULT_LIMIT)
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < float("inf"):
        raise InputError(f"${LIMIT} is {text!r}; give a number of GiB, as 10")
    return CacheFolder(Path(address), int(limit * GIB))


def bytes_of(folders: Iterable[Path]) -> int:
    """How many bytes the files in folders have."""
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
