"""User feedback on answers: one line of JSON each, written to disk before it is acknowledged.

A line includes the query's text, so it is complete by itself.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from stillhouse.core.artifacts import sync
from stillhouse.core.errors import InputError

MOST_BYTES = 64 << 20
"""The most bytes of feedback per day, so that no client can fill the disk."""


@dataclass(frozen=True)
class Feedback:
    """`kind` is `click`, `relevant` or `not_relevant`, which counts against a passage. `at` is ISO 8601 in UTC;
    `client` is a hashed id."""

    query_id: str
    query: str
    passage_id: str
    kind: str
    client: str
    release: str
    at: str


class FeedbackLog:
    """The feedback in a folder that only this process writes, a file a day."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def append(self, feedback: Feedback) -> None:
        """Returns once it is on the disk. Raises `OSError`, after which the file is unchanged."""
        line = json.dumps(asdict(feedback)).encode() + b"\n"
        with self._lock:
            path = self._folder / f"feedback-{datetime.now(UTC):%Y%m%d}.jsonl"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            size = os.fstat(file).st_size
            try:
                if size and os.pread(file, 1, size - 1) != b"\n":
                    line = b"\n" + line  # after a line that a kill cut off
                if size + len(line) > MOST_BYTES or os.write(file, line) < len(line):
                    raise OSError(errno.EDQUOT, "the disk is full, or the feedback of a day has reached its limit")
                os.fsync(file)
                if not size:
                    sync(self._folder)
            except OSError:
                os.ftruncate(file, size)
                raise
            finally:
                os.close(file)


def read_feedback(folder: Path) -> Iterator[Feedback]:
    """All feedback in the folder of a log, oldest day first; a service may be writing there. Raises `InputError` for a
    folder without feedback."""
    files = sorted(folder.glob("feedback-*.jsonl"))
    if not files:
        raise InputError(f"{folder} holds no feedback; give the folder that `stillhouse serve --log-queries` uses")
    for path in files:
        for line in path.read_bytes().splitlines():
            try:
                yield Feedback(**json.loads(line))
            except (ValueError, TypeError):
                continue  # cut off by a kill, before it was acknowledged
