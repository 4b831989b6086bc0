"""What people thought of an answer: one line of JSON each, on the disk before it is acknowledged.

A line includes the query's text, so it is complete by itself. The file of a day begins with a line that identifies it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stillhouse.artifacts import sync
from stillhouse.errors import InputError
from stillhouse.serving.log_folder import FEEDBACK_MARK, is_own, named

KINDS = ("click", "relevant", "not_relevant")
"""`not_relevant` counts against a passage, the others for it."""


class FeedbackFull(Exception):
    """The feedback of this service has reached its limit."""


@dataclass(frozen=True)
class Feedback:
    """`at` is ISO 8601 in UTC; `client` is a hashed id."""

    query_id: str
    query: str
    passage_id: str
    kind: str
    client: str
    release: str
    at: str


class FeedbackLog:
    """The feedback in a folder that `take_folder` locked, at most `most_bytes` of it."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder, self._most = folder, most_bytes
        self._lock = threading.Lock()

    def append(self, feedback: Feedback) -> None:
        """Returns once it is on the disk. Raises `FeedbackFull`, or `OSError`, after which the file is unchanged."""
        line = json.dumps(asdict(feedback)).encode() + b"\n"
        with self._lock:
            if self.size() + len(line) > self._most:
                raise FeedbackFull
            path = self._folder / f"feedback-{datetime.now(UTC):%Y%m%d}.jsonl"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                end = _whole_length(file)
                if not end:
                    sync(self._folder)
                _write(file, line if end else json.dumps(FEEDBACK_MARK).encode() + b"\n" + line, end)
            finally:
                os.close(file)

    def size(self) -> int:
        """The bytes of all days."""
        size = 0
        for path in self._folder.glob("feedback-*.jsonl"):
            with suppress(FileNotFoundError):  # too old, and deleted just now
                size += path.stat().st_size
        return size


def _whole_length(file: int) -> int:
    """Where the last whole line ends: whatever follows was never acknowledged."""
    size = os.fstat(file).st_size
    while size:
        begin = max(0, size - 65_536)
        place = os.pread(file, size - begin, begin).rfind(b"\n")
        if place >= 0:
            return begin + place + 1
        size = begin
    return 0


def _write(file: int, data: bytes, end: int) -> None:
    try:
        os.ftruncate(file, end)
        done = 0
        while done < len(data):
            done += os.pwrite(file, data[done:], end + done)
        os.fsync(file)
    except OSError:
        os.ftruncate(file, end)
        raise


def read_feedback(folder: Path) -> Iterator[Feedback]:
    """All feedback in the folder of a log, oldest day first; a service may be writing there.

    Raises `InputError` for a folder without feedback, and for a damaged line.
    """
    files = [path for path in named(folder, ".jsonl") if is_own(path)]
    if not files:
        raise InputError(f"{folder} holds no feedback; give the folder that `stillhouse serve --log-queries` uses")
    for path in files:
        lines = path.read_bytes().split(b"\n")[:-1]  # after the last newline, one that is being written
        for number, line in enumerate(lines[1:], 2):
            try:
                found: dict[str, Any] = json.loads(line)
                yield Feedback(**found)
            except (ValueError, TypeError):
                raise InputError(f"{path}:{number} is damaged; remove the line") from None
