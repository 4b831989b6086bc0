"""Artifact folders in object storage, such as S3, by their URIs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from stillhouse.artifacts import MANIFEST, whole_folder
from stillhouse.errors import InputError
from stillhouse.remote.address import refuse_secret

LIBRARIES: Mapping[str, tuple[str, str]] = {
    "s3": ("s3fs", "pip install 'stillhouse[s3]'"),
    "gs": ("gcsfs", "pip install 'stillhouse[gcs]'"),
    "abfs": ("adlfs", "pip install 'stillhouse[azure]'"),
    "az": ("adlfs", "pip install 'stillhouse[azure]'"),
}
"""URI schemes: the library behind each, and the command that installs it. All of them are fsspec's."""


class StoredFolder:
    """A folder of artifacts at a URI such as `s3://bucket/releases/in-use`.

    Keys come from where the library looks for them: the environment, a file in the home folder, or the machine's role.
    Raises `InputError` if the URI holds a secret or its library is not installed.
    """

    def __init__(self, uri: str) -> None:
        refuse_secret(uri, "the address")
        scheme = uri.partition("://")[0]
        library, install = LIBRARIES[scheme]
        if find_spec(library) is None:
            raise InputError(f"{scheme}:// needs {library}: {install}")
        import fsspec

        # Another process replaces what is there, so listings and files are never cached.
        self._fs, root = fsspec.core.url_to_fs(uri.rstrip("/"), use_listings_cache=False, skip_instance_cache=True)
        self._root = str(root)

    def manifest(self, name: str) -> bytes | None:
        """The bytes of an artifact's manifest; None if there is none. Other failures are the library's."""
        try:
            found: bytes = self._fs.cat_file(f"{self._root}/{name}/{MANIFEST}")
        except FileNotFoundError:
            return None
        return found

    def fetch(self, name: str, target: Path) -> None:
        """Fetches an artifact to `target`, all of it or nothing. Compare its files with its manifest afterwards."""
        manifest = self.manifest(name)
        if manifest is None:
            raise InputError(f"{self._root} holds no {name}")
        files = _listed(manifest, f"{self._root}/{name}/{MANIFEST}")
        with whole_folder(target) as staging:
            for file in files:
                (staging / file).parent.mkdir(parents=True, exist_ok=True)
            self._fs.get([f"{self._root}/{name}/{file}" for file in files], [str(staging / file) for file in files])
            (staging / MANIFEST).write_bytes(manifest)


def _listed(manifest: bytes, where: str) -> list[str]:
    """The files that a manifest lists. Raises `InputError` for one outside its folder."""
    try:
        content: Any = json.loads(manifest)
        files = sorted(content["files"])
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{where} is damaged: no Stillhouse step wrote it") from None
    for file in files:
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or "\\" in file or not path.parts:
            raise InputError(f"{where} lists {file!r}, which is outside its folder")
    return files
