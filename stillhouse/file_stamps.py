"""Digests that were computed before, for files that are as they were: gigabytes need not be read at every start.

A file is taken for unchanged where device, inode, size, time of the last write (`mtime`) and time of the last change
(`ctime`) are those of the file that was read. Whoever writes into a file may set its `mtime` back; its `ctime` follows
the system's clock alone. A file that changed within `SETTLED` seconds before it was read is not remembered: another
write within one tick of the clock would leave no trace.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from stillhouse.artifacts import digest_file, write_whole_json

FILE = "digests.json"
SETTLED = 2.0
"""Seconds: the coarsest clock of a file system in use."""
MOST = 10_000
"""Beyond this many files only those of the last start are remembered."""


class FileStamps:
    """`digest(path)` gives a file's SHA-256, from the file `memory` where it is known; `save` writes what was learned.

    A memory that is missing, damaged or cannot be written counts as empty. With `verify` every file is read.
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
        with suppress(OSError):  # a place that is read-only, or full: the next start reads the files again
            write_whole_json(self._memory, self._known if len(self._known) <= MOST else self._used)


def _stamp(path: Path) -> tuple[str, float]:
    """Which file in which state it is, and when that changed, in seconds."""
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
