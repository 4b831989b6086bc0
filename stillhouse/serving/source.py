"""The sources of releases that `stillhouse serve` accepts: a folder, or a git repository (`released_source.py`)."""

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from stillhouse.core.artifacts import MANIFEST
from stillhouse.core.errors import InputError

PARTS = ("retriever", "index", "corpus")
OPTIONAL = ("hybrid", "reranker")
BESIDE = Path("ingest") / "corpus"
"""Where a run leaves the corpus, next to the folder of the winner."""
OF_GIT = ("git", "ssh", "http", "https")
"""URL schemes that git reads; a `git+` prefix marks any other address as git's."""
WITHOUT_SCHEME = re.compile(r"[\w.-]+@[\w.-]+:(?!//).+")
"""`git@host:path`, as in ssh."""


class Unreachable(InputError):
    """The source of the release does not answer, or cannot provide it now: a later check tries again."""


class Source(Protocol):
    """The source of the release to serve."""

    def state(self) -> Hashable:
        """A value that is cheap to get, and changes whenever another release may be there."""

    def folders(self) -> dict[str, Path]:
        """The folders of the release by name, on this disk. Raises `InputError` if one is missing."""

    def origin(self) -> Mapping[str, Any]:
        """What is known of the release whose folders were returned last: its version, commit and figures."""

    def end(self) -> None:
        """Releases what it holds; running work ends soon."""


class FolderSource:
    """A folder with `retriever/`, `index/` and `corpus/`, and optionally `hybrid/` and `reranker/`.

    `stillhouse release fetch` writes such a folder. A run leaves one in `artifacts/best`, with the corpus in
    `artifacts/ingest/corpus`. It may be a link.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def state(self) -> Hashable:
        """The folder itself, and the manifest of each part, or the part itself if it has none."""
        seen = []
        for path in (self._folder, *self._places().values()):
            for each in (path, path / MANIFEST):
                try:
                    found = each.stat()
                    seen.append((found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))
                except OSError as error:
                    seen.append((error.errno or 0, 0, 0, 0))
        return tuple(seen)

    def folders(self) -> dict[str, Path]:
        found = {name: place for name, place in self._places().items() if name in PARTS or place.is_dir()}
        for name in PARTS:
            if not found[name].is_dir():
                remedy = "`stillhouse release fetch` or a run writes one"
                raise InputError(f"{self._folder} is not a release: {found[name]} does not exist; {remedy}")
        return found

    def origin(self) -> Mapping[str, Any]:
        return {}

    def end(self) -> None:
        pass

    def _places(self) -> dict[str, Path]:
        # Resolve a link once, so that no part comes from the release that the link points to next.
        folder = self._folder.resolve()
        corpus, beside = folder / "corpus", folder.parent / BESIDE
        if not corpus.is_dir() and beside.is_dir():
            corpus = beside
        return {name: folder / name for name in (*PARTS, *OPTIONAL)} | {"corpus": corpus}


def repository_of(place: str) -> str:
    """The address of the git repository that a place names; "" for a folder. Raises `InputError` for other URIs."""
    if not place.strip():
        raise InputError("the location of the releases is empty; give a folder or a git repository")
    if place.startswith("git+"):
        return place.removeprefix("git+")
    scheme = urlsplit(place).scheme if "://" in place else ""
    if scheme in OF_GIT or (not scheme and WITHOUT_SCHEME.fullmatch(place)):
        return place
    if scheme:
        raise InputError(
            f"{place} is neither a folder nor a git repository; on a cluster, KServe's storage initializer copies a "
            "storage URI to a folder: `stillhouse serve /mnt/models`. Elsewhere, copy it to a folder first"
        )
    return ""
