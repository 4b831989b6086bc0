"""Finds the article files below a folder, and rejects files with a bad name and links that lead elsewhere.

A source may come from a repository, so no link may lead out of it: `notes.txt -> /etc/passwd` would become a passage.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.file_names import MISNAMED, is_utf8, shown
from stillhouse.corpus.sources.rows import Rejected

BESIDE_PAGES = ("_sources", "robots.txt")
"""Files of a web site that are not articles: rules for robots, and Sphinx's copies of its sources."""
LEADS_OUT = "a link that leads out of the source; copy there what it leads to"
LEADS_NOWHERE = "a link that leads nowhere"
LOOPS = "a link to a folder that it lies in"
LINKED_TWICE = "a link to a folder that another link leads to"


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

    Hidden files and `BESIDE_PAGES` are left out. Links within the source are followed, at most one link to each folder;
    the source itself may be a link, or one file. Raises `InputError` if `articles/` is a link out of the source.
    """
    if source.is_file():
        return TreeFiles(source.parent, {source.name: source}, [])
    root = source / "articles" if (source / "articles").is_dir() else source
    if leads_out(root, source):
        raise InputError(f"{root} links out of the source; give its target as the source")
    found = TreeFiles(root, {}, [])
    for relative, path, reason in sorted(_walk(root, source, suffixes)):
        if not is_utf8(relative):
            reason = MISNAMED
        if reason:
            name = path.relative_to(source).as_posix()
            id = shown(PurePosixPath(relative).with_suffix("").as_posix())
            found.rejected.append(Rejected("passage", id, reason, shown(name), ""))
        else:
            found.paths[relative] = path
    return found


def _walk(root: Path, source: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, Path, str]]:
    """(path below the root, path, why it is not read or "") of every article and of every unread folder."""
    base = source.resolve()
    linked: set[Path] = set()
    waiting: list[tuple[Path, tuple[Path, ...]]] = [(root, (root.resolve(),))]
    while waiting:
        folder, above = waiting.pop()
        try:
            entries = sorted(folder.iterdir())
        except PermissionError as error:
            if folder == root:
                raise InputError(f"{root} cannot be read: {error.strerror}") from None
            yield folder.relative_to(root).as_posix(), folder, f"cannot be read: {error.strerror}"
            continue
        inner: list[tuple[Path, tuple[Path, ...]]] = []
        for path in (entry for entry in entries if entry.name[0] != "." and entry.name not in BESIDE_PAGES):
            relative, is_article = path.relative_to(root).as_posix(), path.suffix.lower() in suffixes
            real, reason = above[-1] / path.name, ""
            if path.is_symlink():
                real, reason = _followed(path, base)
            if path.is_dir():
                if not reason and path.is_symlink():
                    reason = LOOPS if real in above else LINKED_TWICE if real in linked else ""
                    linked.add(real)
                if reason:
                    yield relative, path, reason
                else:
                    inner.append((path, (*above, real)))
            elif is_article and (reason or path.is_file()):
                yield relative, path, reason
        waiting += reversed(inner)


def _followed(link: Path, base: Path) -> tuple[Path, str]:
    """The final target of a link, and why it is not followed, or ""."""
    try:
        real = link.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        return link, LEADS_NOWHERE
    return real, "" if real.is_relative_to(base) else LEADS_OUT
