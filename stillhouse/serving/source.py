"""The sources of releases that `stillhouse serve` accepts: a folder, a git repository, or a storage URI.

The source for a folder is here, that for a repository in `released_source.py`, for storage in `stored_source.py`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from stillhouse.artifacts import MANIFEST, read_manifest
from stillhouse.errors import InputError
from stillhouse.remote.storage import LIBRARIES

PARTS = ("retriever", "index", "corpus")
OPTIONAL = ("hybrid", "reranker", "run")
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
    """A folder with `retriever/`, `index/` and `corpus/`, and optionally `hybrid/`, `reranker/` and `run/`.

    `stillhouse release fetch` writes such a folder. A run leaves one in `artifacts/best`, with the corpus in
    `artifacts/ingest/corpus` and the run in `artifacts/best_run/run`. It may be a link. `corpus` names another place
    for the corpus.
    """

    def __init__(self, folder: Path, corpus: Path | None = None) -> None:
        self._folder, self._corpus = folder, corpus

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
        if "run" in found and found["run"].parent != found["index"].parent and not _is_run_of(found):
            del found["run"]  # it belongs to an earlier winner; `retrieve` has not run for this one yet
        for name in PARTS:
            if not found[name].is_dir():
                remedy = "`stillhouse release fetch` or a run writes one; --corpus names a corpus elsewhere"
                raise InputError(f"{self._folder} is not a release: {found[name]} does not exist; {remedy}")
        return found

    def origin(self) -> Mapping[str, Any]:
        return {}

    def end(self) -> None:
        pass

    def _places(self) -> dict[str, Path]:
        # Resolve a link once, so that no part comes from the release that the link points to next.
        folder = self._folder.resolve()
        corpus = self._corpus or folder / "corpus"
        beside = folder.parent / BESIDE
        if self._corpus is None and not corpus.is_dir() and beside.is_dir():
            corpus = beside
        run = folder / "run"
        if not run.is_dir():
            run = folder.with_name(f"{folder.name}_run") / "run"
        return {name: folder / name for name in (*PARTS, *OPTIONAL)} | {"corpus": corpus, "run": run}


def _is_run_of(folders: dict[str, Path]) -> bool:
    """Whether a run next to a release was made with its retriever and index."""
    try:
        run = read_manifest(folders["run"], verify=False)
        return all(
            run.inputs.get(name) == read_manifest(folders[name], verify=False).digest for name in ("retriever", "index")
        )
    except InputError:
        return False


def repository_of(place: str) -> str:
    """The address of the git repository that a place names; "" for a folder and for object storage.

    Raises `InputError` for any other URI.
    """
    if not place.strip():
        raise InputError("the location of the releases is empty; give a folder, a git repository or a storage URI")
    if place.startswith("git+"):
        return place.removeprefix("git+")
    scheme = urlsplit(place).scheme if "://" in place else ""
    if scheme in OF_GIT or (not scheme and WITHOUT_SCHEME.fullmatch(place)):
        return place
    if scheme not in ("", "file", *LIBRARIES):
        raise InputError(
            f"{place} is neither a folder, a git repository nor storage that can be read from here "
            f"({', '.join(f'{scheme}://' for scheme in LIBRARIES)}); on a cluster, KServe's storage initializer copies "
            "it to a folder: `stillhouse serve /mnt/models`. Elsewhere, copy it here first"
        )
    return ""


def storage_of(place: str) -> str:
    """The storage URI that a place is, such as `s3://bucket/in-use`; "" for others."""
    return place if "://" in place and urlsplit(place).scheme in LIBRARIES else ""


def folder_of(place: str) -> Path:
    """The folder that a place names, possibly as `file:///folder`."""
    return Path(unquote(urlsplit(place).path)) if place.startswith("file://") else Path(place)
