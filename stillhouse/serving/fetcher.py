"""Fetches releases in a separate process, and keeps only the latest of them on the disk."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillhouse.artifacts import read_manifest
from stillhouse.errors import InputError
from stillhouse.remote.address import redact
from stillhouse.serving.source import Unreachable

SPARE = 2
"""Fetched releases that stay on the disk besides those that the service keeps open."""


class Fetcher:
    """Fetches into `folder`, where `keep` + `SPARE` of the folders whose names match `made` stay."""

    def __init__(self, folder: Path, keep: int, made: re.Pattern[str]) -> None:
        self._folder, self._keep, self._made = folder, keep, made
        self._used: list[Path] = []
        self._child: subprocess.Popen[str] | None = None
        self._over = threading.Event()

    def fetch(self, asked: Mapping[str, Any], name: str) -> None:
        """Fetches what `stillhouse.serving.fetch_parts` is asked for. Raises `Unreachable`, with the reason."""
        words = [sys.executable, "-m", "stillhouse.serving.fetch_parts"]
        self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self._over.is_set():  # between `end` and this
            self._child.kill()
        _, said = self._child.communicate(json.dumps(asked))
        code, self._child = self._child.returncode, None
        if code != 0:
            reason = (said.strip().splitlines() or [f"exit code {code}"])[-1]
            raise Unreachable(f"{name} cannot be fetched: {redact(reason)}")

    def was_used(self, place: Path) -> bool:
        """Whether this process has already served the folder, and so knows that it is whole."""
        return place in self._used

    def use(self, place: Path) -> None:
        """Removes the least recently used folders; the files of an open one stay readable."""
        self._used = [*[one for one in self._used if one != place], place][-(self._keep + SPARE) :]
        for path in self._folder.iterdir():
            if self._made.fullmatch(path.name) and path not in self._used and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)

    def end(self) -> None:
        """Ends a running fetch, and every later one."""
        self._over.set()
        if child := self._child:
            child.kill()


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
