"""File names that are not UTF-8: a file with such a name is rejected, and the rest is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from stillhouse.corpus.sources.rows import Rejected

MISNAMED = "file name is not UTF-8; rename it"
"""Why such a file is rejected."""


def is_utf8(name: str) -> bool:
    """Whether a file name is valid UTF-8: Python represents other bytes as lone surrogates."""
    return name.isascii() or shown(name) == name


def shown(name: str) -> str:
    """A name as text, with each byte that is not UTF-8 escaped, as in `\\xe9`."""
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def entries(folder: Path) -> list[Path]:
    """The sorted entries of a folder, except those with a name that is not UTF-8."""
    return sorted(path for path in folder.iterdir() if is_utf8(path.name))


def misnamed(folder: Path) -> Iterator[Rejected]:
    """A `Rejected` for each file with a name that is not UTF-8, in a folder and its direct subfolders."""
    for path in sorted(folder.iterdir()):
        within = sorted(path.iterdir()) if path.is_dir() and not path.name.startswith(".") else [path]
        for file in within:
            name = file.relative_to(folder).as_posix()
            if file.is_file() and not is_utf8(name):
                yield Rejected("line", "", MISNAMED, shown(name), "")
