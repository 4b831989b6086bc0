"""Serves the release in object storage, such as S3, which another process replaces.

Each check reads the manifests there. A new release is fetched into its own folder and opened only when it is complete
and every file agrees with its manifest.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from pathlib import Path

from stillhouse.artifacts import digest_bytes, digest_json
from stillhouse.errors import InputError
from stillhouse.remote.deadline import within
from stillhouse.remote.dvc_source import reason
from stillhouse.remote.storage import StoredFolder
from stillhouse.serving.fetcher import Fetcher, is_whole
from stillhouse.serving.source import OPTIONAL, PARTS, Unreachable

SECONDS = 60.0
"""How long the storage may take to show a manifest; a fetch may take as long as it needs."""
FETCHED = re.compile(r"\.?stored-[0-9a-f]{12}(\.partial)?")
"""Folders that this module makes."""


class StoredSource:
    """The release at a storage `uri`: `retriever/`, `index/`, `corpus/`, and optionally what `FolderSource` reads.

    Releases are fetched into `folder`, where the latest of them stay (`Fetcher`). `log` gets a line per fetch. Raises
    `InputError` for a URI with a secret or without its library, and if another process uses the folder.
    """

    def __init__(self, uri: str, folder: Path, log: Callable[[str], None], keep: int = 1) -> None:
        self._uri, self._folder, self._log = uri.rstrip("/"), folder.absolute(), log
        self._storage = StoredFolder(self._uri)
        self._digests: dict[str, str] = {}
        self._fetcher = Fetcher(self._folder, keep, FETCHED)

    def state(self) -> Hashable:
        """The digests of the release's manifests. Raises `Unreachable` if the storage does not answer."""
        with self._fetcher.busy:
            self._digests = self._look()
        return tuple(self._digests.items())

    def folders(self) -> dict[str, Path]:
        """The release's folders. Raises `Unreachable` if they cannot be fetched, or do not agree yet."""
        with self._fetcher.busy:
            digests = self._digests = self._digests or self._look()
            for name in PARTS:
                if name not in digests:
                    raise InputError(
                        f"{self._uri} is not a release: it holds no {name}; copy there what `stillhouse release fetch` "
                        "or a run writes"
                    )
            place = self._folder / f"stored-{digest_json(digests)[:12]}"
            self._fetcher.bring(place, digests, partial(self._fetch, digests))
        return {name: place / name for name in digests}

    def origin(self) -> Mapping[str, str]:
        return {"storage": self._uri}

    def end(self) -> None:
        self._fetcher.end()

    def _look(self) -> dict[str, str]:
        """The digests of the manifests that are there now."""
        try:
            found = within(SECONDS, lambda: {name: self._storage.manifest(name) for name in (*PARTS, *OPTIONAL)})
        except InputError:
            raise
        except Exception as error:  # each library has its own
            raise Unreachable(
                f"cannot read {self._uri} ({reason(error)}); is the address right, and may this machine read it (key, "
                "role; in a pod, its service account or a secret)?"
            ) from None
        return {name: digest_bytes(manifest) for name, manifest in found.items() if manifest is not None}

    def _fetch(self, digests: Mapping[str, str], folder: Path, lacking: list[str]) -> None:
        """Fetches parts and compares all with their manifests; what is still being written there is tried again."""
        self._log(f"fetching the release at {self._uri}")
        parts = {name: str(folder / name) for name in lacking}
        self._fetcher.fetch({"storage": self._uri, "parts": parts}, self._uri)
        for name, digest in digests.items():
            if not is_whole({name: digest}, folder):
                shutil.rmtree(folder / name)
                raise Unreachable(
                    f"{self._uri}/{name} does not agree with its manifest: it is being replaced, or it is damaged"
                )
