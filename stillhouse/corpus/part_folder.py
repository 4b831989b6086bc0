"""The folder of a part that one of several processes writes: it is there whole or not at all, whoever is killed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stillhouse.artifacts import flush


@contextmanager
def part_folder(folder: Path) -> Iterator[Path]:
    """Gives a folder beside `folder` to write into, and renames it to `folder` once the block ends without an error.

    Where another try of the same part, which was given up too early, is first, its folder stays: it has the same files.
    """
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield staging
        flush(staging)
        try:
            staging.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
