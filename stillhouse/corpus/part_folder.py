"""The folder of a part that one of several processes writes: it appears whole or not at all, even after a kill."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stillhouse.core.artifacts import flush


@contextmanager
def part_folder(folder: Path) -> Iterator[Path]:
    """Yields a folder beside `folder` to write into, and renames it to `folder` once the block ends without an error.

    If an earlier try at the same part, wrongly given up as dead, finishes first, its folder stays: the files are equal.
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
