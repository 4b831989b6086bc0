"""Names of files that can be written down: those in UTF-8. A file of another name is rejected and the rest is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from stillhouse.corpus.sources.rows import Rejected

MISNAMED = "file name is not UTF-8; rename it"
"""Why such a file is rejected."""


def is_utf8(name: str) -> bool:
    """Whether a name that the system gave is text: Python holds its other bytes as halves of surrogate pairs."""
    return name.isascii() or shown(name) == name


def shown(name: str) -> str:
    """A name as text, with each byte that is not UTF-8 as `\\xe9`, say."""
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def entries(folder: Path) -> list[Path]:
    """What lies in a folder, by name, without that whose name is not UTF-8."""
    return sorted(path for path in folder.iterdir() if is_utf8(path.name))


def misnamed(folder: Path) -> Iterator[Rejected]:
    """A `Rejected` for each file of a folder, and of the folders in it, whose name is not UTF-8."""
    for path in sorted(folder.iterdir()):
        within = sorted(path.iterdir()) if path.is_dir() and not path.name.startswith(".") else [path]
        for file in within:
            name = file.relative_to(folder).as_posix()
            if file.is_file() and not is_utf8(name):
                yield Rejected("line", "", MISNAMED, shown(name), "")
