"""Serves releases of a git repository: git says which one is in use, and DVC stores its data.

Each check asks git for its tags. A new release is fetched into its own folder, compared with the digests in its
`release.json`, and opened only when it is complete.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from stillhouse.artifacts import read_manifest
from stillhouse.errors import InputError
from stillhouse.releases.git import REMOTE, Git, GitFailed
from stillhouse.releases.tags import NAME, Release, read_history
from stillhouse.remote.address import redact, refuse_secret
from stillhouse.serving.fetcher import Fetcher, manifest_digest
from stillhouse.serving.source import OPTIONAL, PARTS, Unreachable

TAGS = (f"refs/tags/{NAME}@v*", f"refs/tags/{NAME}#champion#*")
SECONDS = 60.0
"""How long git may take to answer; DVC may fetch as long as it makes progress."""
FETCHED = re.compile(r"\.?v\d+\.\d+\.\d+-[0-9a-f]{12}(\.partial)?")
"""Folders that this module makes."""


class ReleasedSource:
    """The release in use of a git `repository`, or the one that `version` names (`v1.2.0`).

    Releases are fetched into `folder`, where the latest of them stay (`Fetcher`). `log` gets a line per fetch. Raises
    `InputError` for an address with a password, and if another process uses the folder.
    """

    def __init__(
        self, repository: str, folder: Path, log: Callable[[str], None], version: str = "", keep: int = 1
    ) -> None:
        refuse_secret(repository, "the repository")
        self._repository, self._version, self._log = repository, version, log
        self._folder = folder.absolute()
        self._listed = ""
        self._release: Release | None = None
        self._fetcher = Fetcher(self._folder, keep, FETCHED)
        beside = self._fetcher.held.enter_context(tempfile.TemporaryDirectory(prefix="stillhouse-"))
        self._git = Git(Path(beside), SECONDS)

    def state(self) -> Hashable:
        """The identity of the release. Raises `Unreachable` if git's server does not answer."""
        try:
            with self._fetcher.busy:
                listed = self._list()
                if self._release is None or listed != self._listed:
                    self._release = self._find()
                    self._listed = listed
        except GitFailed as error:
            raise Unreachable(
                f"cannot read the releases of {self._repository} ({error.first}); is the address right, and may this "
                "machine read it (key, token; in a pod, the secret stillhouse-git)?"
            ) from None
        return self._release.identity

    def origin(self) -> Mapping[str, Any]:
        release = self._release
        assert release is not None, "`state` comes first"
        return {
            "version": release.name,
            "tag": release.tag,
            "commit": release.commit,
            "repository": redact(self._repository),
        } | {name: _plain(release.record.get(name)) for name in ("figures", "verdict")}

    def folders(self) -> dict[str, Path]:
        """The release's folders. Raises `Unreachable` if the data cannot be fetched, and `InputError` if they are not
        the released ones."""
        if self._release is None:
            self.state()
        release = self._release
        assert release is not None
        for name in PARTS:
            if name not in release.paths:
                raise InputError(f"{release.name} of {self._repository} holds no {name}, so it cannot be served")
        place = self._folder / f"{release.name}-{release.identity[:12]}"
        with self._fetcher.busy:
            self._fetcher.bring(place, _digests(release), partial(self._fetch, release))
        found = {name: place / name for name in (*PARTS, *OPTIONAL) if (place / name).is_dir()}
        return self._without_foreign_reranker(release, found)

    def end(self) -> None:
        self._fetcher.end()

    def _list(self) -> str:
        if not (self._git.folder / ".git").is_dir():
            try:
                self._git("init", "--quiet")
            except FileNotFoundError:
                raise InputError("releases need git, which is not installed here") from None
            self._git("remote", "add", REMOTE, self._repository)
        return self._git("ls-remote", REMOTE, *TAGS)

    def _find(self) -> Release:
        # Only the releases' commits: serving does not need the history of the code.
        self._git(
            "fetch", "--quiet", "--no-tags", "--prune", "--depth", "1", REMOTE, *(f"+{tag}:{tag}" for tag in TAGS)
        )
        history = read_history(self._git, fetch=False)
        release = history.find(self._version) if self._version else history.champion
        if release is None:
            raise InputError(
                f"nothing is released in {self._repository} yet; `stillhouse release promote` releases what "
                "`dvc repro` made"
            )
        return release

    def _fetch(self, release: Release, folder: Path, lacking: list[str]) -> None:
        """Fetches parts; their files are compared with their manifests when the release is opened."""
        self._log(f"fetching {release.name} from {redact(self._repository)}")
        self._run_fetch(release, {release.paths[name]: str(folder / name) for name in lacking})
        for name in lacking:
            if manifest_digest(folder / name) != _digests(release)[name]:
                shutil.rmtree(folder / name)
                raise InputError(
                    f"{name} of {release.name} is not what was released: its data were changed on the remote; release "
                    "again, or roll back (`stillhouse release rollback`)"
                )

    def _run_fetch(self, release: Release, parts: Mapping[str, str]) -> None:
        asked = {"repository": self._repository, "commit": release.commit, "parts": dict(parts)}
        self._fetcher.fetch(asked, release.name)

    def _without_foreign_reranker(self, release: Release, found: dict[str, Path]) -> dict[str, Path]:
        """Drops a re-ranker that was trained on an older corpus: it taught the retriever, but cannot be served."""
        if "reranker" in found:
            made_from = read_manifest(found["reranker"], verify=False).inputs.get("corpus")
            if made_from != release.record["artifacts"]["corpus"]["digest"]:
                self._log(f"the re-ranker of {release.name} was trained on another corpus, so `/rerank` answers 404")
                del found["reranker"]
        return found


def _plain(value: Any) -> Any:
    """A value of `release.json` for JSON, which has no NaN; None if the release has none."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None) or None


def _digests(release: Release) -> dict[str, str]:
    """The digests of the parts that are served."""
    return {name: release.record["artifacts"][name]["digest"] for name in (*PARTS, *OPTIONAL) if name in release.paths}
