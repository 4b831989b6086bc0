"""The folder of a query log: who may write there, and which of its files are old enough to delete.

A file belongs to the program if both its name and its content have the log's format. Nothing else is touched.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.errors import InputError

LOCK = "queries.lock"
MARK = {b"stillhouse": b"queries 1"}
"""Metadata of every Parquet file of the log."""
FEEDBACK_MARK = {"stillhouse": "feedback 1"}
"""The first line of every feedback file."""
NAMES = re.compile(r"(?:queries-(\d{8})T\d{12}-[0-9a-f]{8}\.parquet|feedback-(\d{8})\.jsonl)")
PARTIAL = re.compile(r"\.queries-\d{8}T\d{12}-[0-9a-f]{8}\.parquet\.partial")


def take_folder(folder: Path) -> int:
    """Makes the folder if it is missing and locks it until the returned descriptor is closed.

    Raises `InputError` if another service writes there.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    number = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise InputError(f"{folder} is the log of another running service; choose another folder") from None
    for path in folder.iterdir():
        if PARTIAL.fullmatch(path.name):
            path.unlink()  # of a process that was killed while it wrote
    return number


def named(folder: Path, suffix: str) -> list[Path]:
    """The files with a log's names, oldest first; `is_own` says whether a log wrote one."""
    found = [path for path in folder.glob(f"*{suffix}") if NAMES.fullmatch(path.name)]
    return sorted(found, key=lambda path: path.name)


def clear_old(folder: Path, days: float, most_bytes: int, now: datetime | None = None) -> list[Path]:
    """Deletes the log's files older than `days` days, then the oldest query files until the rest fit into `most_bytes`.

    Feedback is not deleted to make room for queries: it has its own limit.
    """
    last = f"{(now or datetime.now(UTC)) - timedelta(days=days):%Y%m%d}"
    queries, feedback = named(folder, ".parquet"), named(folder, ".jsonl")
    old = [path for path in (*queries, *feedback) if _day(path) < last]
    left = [path for path in queries if path not in old]
    sizes = [path.stat().st_size for path in left]
    size = sum(sizes)
    for path, own in zip(left[:-1], sizes):
        if size <= most_bytes:
            break
        old.append(path)
        size -= own
    gone = [path for path in old if is_own(path)]
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


def _day(path: Path) -> str:
    found = NAMES.fullmatch(path.name)
    assert found
    return found[1] or found[2]


def is_own(path: Path) -> bool:
    """Whether the content of a file says that a log wrote it."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        if path.suffix == ".parquet":
            found = pq.read_schema(path).metadata or {}
            return all(found.get(name) == value for name, value in MARK.items())
        with path.open("rb") as file:
            return bool(json.loads(file.readline(200)) == FEEDBACK_MARK)
    except (pa.ArrowInvalid, ValueError, OSError):
        return False
