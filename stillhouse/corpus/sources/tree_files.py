"""Finds the article files below a folder, and rejects links that lead elsewhere.

A source may come from a repository, so no link may lead out of it: `notes.txt -> /etc/passwd` would become a passage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.rows import Rejected

BESIDE_PAGES = ("_sources", "robots.txt")
"""Files of a web site that are not articles: rules for robots, and Sphinx's copies of its sources."""
LEADS_OUT = "a link out of the source, to nowhere or to a folder; copy there what it leads to"


class TreeFiles(NamedTuple):
    """`paths` maps the articles' paths below `root` to their paths, in order; `rejected` lists the other files."""

    root: Path
    paths: dict[str, Path]
    rejected: list[Rejected]


def leads_out(path: Path, source: Path) -> bool:
    """Whether an existing path is outside the source after all links are followed."""
    return not path.resolve().is_relative_to(source.resolve())


def tree_files(source: Path, suffixes: tuple[str, ...]) -> TreeFiles:
    """The files below a folder, or below its `articles/`, that end in one of `suffixes`.

    Hidden files and `BESIDE_PAGES` are left out. Links to files within the source are followed; the source itself may
    be a link, or one file. Raises `InputError` if `articles/` is a link out of the source.
    """
    if source.is_file():
        return TreeFiles(source.parent, {source.name: source}, [])
    root = source / "articles" if (source / "articles").is_dir() else source
    if leads_out(root, source):
        raise InputError(f"{root} links out of the source; give its target as the source")
    found = TreeFiles(root, {}, [])
    for relative, path, reason in sorted(_walk(root, source, suffixes)):
        if reason:
            id = PurePosixPath(relative).with_suffix("").as_posix()
            found.rejected.append(Rejected("passage", id, reason, path.relative_to(source).as_posix(), ""))
        else:
            found.paths[relative] = path
    return found


def _walk(root: Path, source: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, Path, str]]:
    """(path below the root, path, why it is not read or "") of every article and of every unread folder."""
    closed: list[OSError] = []
    for place, folders, files in os.walk(root, onerror=closed.append):
        folders[:] = filter(_is_shown, folders)
        for path in (Path(place, name) for name in (*folders, *filter(_is_shown, files))):
            relative, is_article = path.relative_to(root).as_posix(), path.suffix.lower() in suffixes
            if path.is_symlink() and (not path.is_file() or leads_out(path, source)):
                if is_article or path.is_dir():
                    yield relative, path, LEADS_OUT
            elif is_article and path.is_file():
                yield relative, path, ""
    for error in closed:
        path = Path(error.filename)
        if path == root:
            raise InputError(f"{root} cannot be read: {error.strerror}")
        yield path.relative_to(root).as_posix(), path, f"cannot be read: {error.strerror}"


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name not in BESIDE_PAGES
