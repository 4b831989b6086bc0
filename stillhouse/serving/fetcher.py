"""Fetches releases in a separate process, and keeps only the latest of them on the disk."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stillhouse.artifacts import read_manifest, refuse_foreign
from stillhouse.errors import InputError
from stillhouse.lock import only_process
from stillhouse.remote.address import redact
from stillhouse.serving.source import Unreachable

SPARE = 2
"""Fetched releases that stay on the disk besides those that the service keeps open."""
LAST_SECONDS = 3.0
"""How long the shutdown waits for what is still working in the folder."""


class Fetcher:
    """The folder that a source of releases fetches into.

    Of the folders there whose names match `made`, `keep` + `SPARE` stay. `busy` is held by whoever works in the folder,
    and `held` is closed at the end. Raises `InputError` if another process uses the folder.
    """

    def __init__(self, folder: Path, keep: int, made: re.Pattern[str]) -> None:
        self._folder, self._keep, self._made = folder, keep, made
        self._used: list[Path] = []
        self._child: subprocess.Popen[str] | None = None
        self._over, self.busy = threading.Event(), threading.Lock()
        with ExitStack() as held:
            held.enter_context(only_process(folder))
            self.held = held.pop_all()

    def bring(self, place: Path, digests: Mapping[str, str], fetch: Callable[[Path, list[str]], None]) -> None:
        """Makes `place` hold the parts of a release with these digests, all or none, and removes old folders.

        `fetch(partial, lacking)` fetches the lacking parts to `partial` and checks what it got.
        """
        if place not in self._used and place.is_dir() and not is_whole(digests, place):
            shutil.rmtree(place)  # cut off by a machine failure before all of it was on the disk
        if not place.is_dir():
            partial = place.with_name(f".{place.name}.partial")
            for name in digests:
                refuse_foreign(partial / name, name)
            fetch(partial, [name for name, digest in digests.items() if manifest_digest(partial / name) != digest])
            partial.rename(place)
        self._use(place)

    def fetch(self, asked: Mapping[str, Any], name: str) -> None:
        """Runs `stillhouse.serving.fetch_parts` with a request. Raises `Unreachable`, with the reason, if it fails."""
        words = [sys.executable, "-m", "stillhouse.serving.fetch_parts"]
        self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self._over.is_set():  # between `end` and this
            self._child.kill()
        _, said = self._child.communicate(json.dumps(asked))
        code, self._child = self._child.returncode, None
        if code != 0:
            reason = (said.strip().splitlines() or [f"exit code {code}"])[-1]
            raise Unreachable(f"{name} cannot be fetched: {redact(reason)}")

    def _use(self, place: Path) -> None:
        """Removes the least recently used folders; the files of an open one stay readable."""
        self._used = [*[one for one in self._used if one != place], place][-(self._keep + SPARE) :]
        for path in self._folder.iterdir():
            if self._made.fullmatch(path.name) and path not in self._used and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)

    def end(self) -> None:
        """Ends a running fetch and every later one, and releases the folder."""
        self._over.set()
        if child := self._child:
            child.kill()
        if self.busy.acquire(timeout=LAST_SECONDS):
            self.held.close()


def manifest_digest(folder: Path) -> str:
    """The digest in an artifact's manifest, without a look at its files; "" if there is none."""
    try:
        return read_manifest(folder, verify=False).digest
    except InputError:
        return ""


def is_whole(digests: Mapping[str, str], place: Path) -> bool:
    """Whether every part in `place` has its digest, down to each file."""
    try:
        return all(read_manifest(place / name).digest == digest for name, digest in digests.items())
    except InputError:
        return False
