"""Serves releases of a git repository: git says which one is in use, and DVC stores its data.

Each check asks git for its tags. A new release is fetched into its own folder, compared with the digests in its
`release.json`, and opened only when it is complete. It is fetched in a separate process, `python -m` this module: DVC
uses CPU time and memory and changes the current folder, none of which may affect the service's clients.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import digest_in, read_manifest
from stillhouse.core.errors import InputError, access_errors
from stillhouse.core.lock import only_process
from stillhouse.core.remote.address import redact, refuse_secret
from stillhouse.core.remote.git import REMOTE, Git, GitFailed
from stillhouse.releases.tags import NAME, Release, read_history
from stillhouse.serving.source import OPTIONAL, PARTS, Unreachable

TAGS = (f"refs/tags/{NAME}@v*", f"refs/tags/{NAME}#champion#*")
SECONDS = 60.0
"""How long git may take to answer; DVC may keep fetching as long as it makes progress."""
FETCHED = re.compile(r"\.?v\d+\.\d+\.\d+-[0-9a-f]{12}(\.partial)?")
"""Folders that this module makes."""
KEPT = 3
"""Fetched releases that stay on the disk, so that a rollback fetches nothing."""


class ReleasedSource:
    """The release in use of a git `repository`, or the one that `version` names (`v1.2.0`).

    Releases are fetched into `folder`, where the latest of them stay. `log` gets a line per fetch.
    Raises `InputError` for an address with a password, and if another process uses the folder.
    """

    def __init__(self, repository: str, folder: Path, log: Callable[[str], None], version: str = "") -> None:
        refuse_secret(repository, "the repository")
        self._repository, self._version, self._log = repository, version, log
        self._folder = folder.absolute()
        self._listed = ""
        self._release: Release | None = None
        self._over = threading.Event()
        self._child: subprocess.Popen[str] | None = None
        with ExitStack() as held:
            held.enter_context(only_process(self._folder))
            beside = tempfile.TemporaryDirectory(prefix="stillhouse-", ignore_cleanup_errors=True)
            self._git = Git(Path(held.enter_context(beside)), SECONDS)
            self._held = held.pop_all()

    def state(self) -> Hashable:
        """The identity of the release. Raises `Unreachable` if git's server does not answer."""
        try:
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
            "repository": self._repository,
        } | {name: _plain(release.record.get(name)) for name in ("figures", "verdict")}

    def folders(self) -> dict[str, Path]:
        """The release's folders. Raises `Unreachable` if the data cannot be fetched, and `InputError` if they are not
        the released ones."""
        release = self._release
        assert release is not None, "`state` comes first"
        for name in PARTS:
            if name not in release.paths:
                raise InputError(f"{release.name} of {self._repository} holds no {name}, so it cannot be served")
        place = self._folder / f"{release.name}-{release.identity[:12]}"
        if not place.is_dir():
            partial = place.with_name(f".{place.name}.partial")
            self._fetch(release, partial)
            partial.rename(place)
        self._drop_old(place)
        found = {name: place / name for name in (*PARTS, *OPTIONAL) if (place / name).is_dir()}
        if "reranker" in found:
            made_from = read_manifest(found["reranker"], verify=False).inputs.get("corpus")
            if made_from != release.record["artifacts"]["corpus"]["digest"]:
                # A refresh that only indexes again keeps the re-ranker that taught the retriever.
                self._log(f"the re-ranker of {release.name} was trained on another corpus, so re-ranking answers 404")
                del found["reranker"]
        return found

    def end(self) -> None:
        """Ends a running fetch and every later one, and releases the folder."""
        self._over.set()
        if child := self._child:
            child.kill()
        self._held.close()

    def _list(self) -> str:
        if not (self._git.folder / ".git").is_dir():
            self._git("init", "--quiet")
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
            raise InputError(f"nothing is released in {self._repository} yet; run `stillhouse release promote` there")
        return release

    def _fetch(self, release: Release, folder: Path) -> None:
        """Fetches the parts that an interrupted fetch left out. The files are compared with their manifests when the
        release is opened."""

        def lacking() -> list[str]:
            names = [name for name in (*PARTS, *OPTIONAL) if name in release.paths]
            wanted = {name: release.record["artifacts"][name]["digest"] for name in names}
            return [name for name, digest in wanted.items() if digest_in(folder / name, verify=False) != digest]

        self._log(f"fetching {release.name} from {self._repository}")
        if parts := {release.paths[name]: str(folder / name) for name in lacking()}:
            self._run_fetch(release, parts)
        for name in lacking():
            raise InputError(
                f"{name} of {release.name} is not what was released: its data were changed on the remote; release "
                "again, or roll back (`stillhouse release rollback`)"
            )

    def _run_fetch(self, release: Release, parts: Mapping[str, str]) -> None:
        words = [sys.executable, "-m", "stillhouse.serving.released_source"]
        self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self._over.is_set():  # between `end` and this
            self._child.kill()
        asked = {"repository": self._repository, "commit": release.commit, "parts": dict(parts)}
        _, said = self._child.communicate(json.dumps(asked))
        code, self._child = self._child.returncode, None
        if code != 0:
            reason = (said.strip().splitlines() or [f"exit code {code}"])[-1]
            raise Unreachable(f"{release.name} cannot be fetched: {redact(reason)}")

    def _drop_old(self, place: Path) -> None:
        """Removes the least recently used folders; the files of an open one stay readable."""
        with suppress(OSError):  # the folder may be another user's
            os.utime(place)  # so that a service started later knows it too
        found = (path for path in self._folder.iterdir() if path.is_dir() and not path.is_symlink())
        fetched = [path for path in found if FETCHED.fullmatch(path.name)]
        whole = [path for path in fetched if path.suffix != ".partial"]
        whole.sort(key=lambda path: (path == place, path.stat().st_mtime_ns))
        for path in {*fetched} - {*whole[-KEPT:]}:
            shutil.rmtree(path)


def _plain(value: Any) -> Any:
    """A value of `release.json` for JSON, which has no NaN; None if the release has none."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None) or None


def main() -> int:
    """Fetches what standard input requests, as JSON: `{"repository", "commit", "parts": {path there: target folder}}`.

    Returns 0, or the exit code of an `InputError`, with its message on standard error.
    """
    from stillhouse.core.remote.dvc_source import fetch

    asked = json.load(sys.stdin)
    try:
        with access_errors():
            places = {path: Path(target) for path, target in asked["parts"].items()}
            fetch(asked["repository"], asked["commit"], places)
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
