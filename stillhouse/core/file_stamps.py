"""Remembers the digests of unchanged files, so that a restart need not read gigabytes again.

A file counts as unchanged if its device, inode, size, modification time (`mtime`) and change time (`ctime`) are the
same as when it was read. A program can set `mtime` back, but `ctime` always follows the system's clock. The digest of a
file that changed within `SETTLED` seconds before it was read is not remembered, since another write within the same
clock tick would leave no trace.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from stillhouse.core.artifacts import digest_file, write_whole_json

FILE = "digests.json"
SETTLED = 2.0
"""Seconds: the coarsest clock of common file systems."""
MOST = 10_000
"""Beyond this number of files, only those of the last process are remembered."""


class FileStamps:
    """`digest(path)` returns a file's SHA-256, from the file `memory` if known; `save` writes the new digests to it.

    A memory that is missing or damaged counts as empty, and one that cannot be written stays unchanged. With `verify`,
    every file is read.
    """

    def __init__(self, memory: Path, verify: bool = False) -> None:
        self._memory, self._verify = memory, verify
        self._known = _read(memory)
        self._used: dict[str, str] = {}

    def digest(self, path: Path) -> str:
        stamp, changed = _stamp(path)
        if self._verify or stamp not in self._known:
            began = time.time()
            digest = digest_file(path)
            self._known.pop(stamp, None)
            if changed >= began - SETTLED:
                return digest
            self._known[stamp] = digest
        self._used[stamp] = self._known[stamp]
        return self._used[stamp]

    def save(self) -> None:
        if self._known == _read(self._memory):
            return
        with suppress(OSError):  # read-only or full: the next start reads the files again
            write_whole_json(self._memory, self._known if len(self._known) <= MOST else self._used)


def _stamp(path: Path) -> tuple[str, float]:
    """A key for a file and its state, and the file's change time in seconds."""
    found = path.stat()
    parts = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return "-".join(map(str, parts)), found.st_ctime


def _read(memory: Path) -> dict[str, str]:
    try:
        content = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {stamp: digest for stamp, digest in content.items() if isinstance(digest, str)}
