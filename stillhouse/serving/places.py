"""The sources of releases that `stillhouse serve` accepts: a folder, a git repository, or a storage URI."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stillhouse.errors import InputError
from stillhouse.remote.storage import LIBRARIES

OF_GIT = ("git", "ssh", "http", "https")
"""URL schemes that git reads; a `git+` prefix marks any other address as git's."""
WITHOUT_SCHEME = re.compile(r"[\w.-]+@[\w.-]+:(?!//).+")
"""`git@host:path`, as in ssh."""


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
