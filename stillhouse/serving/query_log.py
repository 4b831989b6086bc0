"""The optional log of questions and of the feedback on their answers: JSON lines, in a file of each day.

The files of a day are `queries/20260331.jsonl` and `feedback/20260331.jsonl`. They say nothing about who asked.
"""

import errno
import json
import os
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError

QUERIES, FEEDBACK = "queries", "feedback"
SHOWN = 10
"""How many passages of an answer are kept."""
KNOWN = 20_000
"""How many queries accept feedback: the newest ones."""
DAY = re.compile(r"\d{8}\.jsonl")


@dataclass(frozen=True)
class Asked:
    """An answered query: a line of the log. `asked_at` is ISO 8601 in UTC."""

    query_id: str
    asked_at: str
    release: str
    query: str
    passage_ids: list[str]
    scores: list[float]


class QueryLog:
    """The log in `folder`, whose files are deleted after `days` days. `log` gets a line if it cannot be written."""

    def __init__(self, folder: Path, days: float, log: Callable[[str], None] = lambda line: None) -> None:
        self._folder, self.days, self._log = folder, days, log
        self._known: OrderedDict[str, Asked] = OrderedDict()
        self._lock = threading.Lock()
        for kind in (QUERIES, FEEDBACK):
            (folder / kind).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._clear_daily()

    def _clear_daily(self) -> None:
        try:
            clear_old(self._folder, self.days)
        except OSError as error:
            self._log(f"old files of the query log cannot be deleted: {error}")
        timer = threading.Timer(24 * 3600, self._clear_daily)
        timer.daemon = True
        timer.start()

    def note(self, release: str, query: str, hits: Sequence[tuple[str, float]]) -> str:
        """Writes an answered query and returns its id. A search never fails because the log cannot be written."""
        ids, scores = [id for id, _ in hits[:SHOWN]], [score for _, score in hits[:SHOWN]]
        asked = Asked(secrets.token_hex(12), _now(), release, query, ids, scores)
        with self._lock:
            self._known[asked.query_id] = asked
            if len(self._known) > KNOWN:
                self._known.popitem(last=False)
        try:
            self._append(QUERIES, asdict(asked))
        except OSError as error:
            self._log(f"the query log cannot be written: {error}")
        return asked.query_id

    def find(self, query_id: str) -> Asked | None:
        """A query in the log, if it is among the newest `KNOWN` since the service started."""
        return self._known.get(query_id)

    def judge(self, asked: Asked, passage_id: str, kind: str) -> None:
        """Writes feedback: `kind` is `click`, `relevant` or `not_relevant`. Raises `OSError` if that fails.

        A line includes the query's text, so it is complete by itself.
        """
        row = {"query_id": asked.query_id, "query": asked.query, "passage_id": passage_id, "kind": kind}
        self._append(FEEDBACK, row | {"release": asked.release, "at": _now()})

    def _append(self, kind: str, row: dict[str, Any]) -> None:
        path = self._folder / kind / f"{datetime.now(UTC):%Y%m%d}.jsonl"
        with self._lock, open(path, "a+b", buffering=0, opener=partial(os.open, mode=0o600)) as file:
            size, line = file.tell(), json.dumps(row).encode() + b"\n"
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                line = b"\n" + line  # after a line that a kill cut off
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            except OSError:
                file.truncate(size)  # on a full disk, a part may have been written
                raise


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def read_log(folder: Path, kind: str) -> Iterator[dict[str, Any]]:
    """The queries or the feedback of a log, oldest first; a service may be writing there.

    Raises `InputError` for a folder without any.
    """
    files = sorted((folder / kind).glob("*.jsonl"))
    if not files:
        raise InputError(f"{folder} holds no {kind}; give the folder that `stillhouse serve --log-queries` uses")
    for path in files:
        for line in path.read_bytes().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue  # it is being written


def clear_old(folder: Path, days: float, now: datetime | None = None) -> None:
    """Deletes the log's own files that are older than `days` days."""
    last = f"{(now or datetime.now(UTC)) - timedelta(days=days):%Y%m%d}"
    for kind in (QUERIES, FEEDBACK):
        for path in (folder / kind).iterdir():
            if DAY.fullmatch(path.name) and path.stem < last:
                path.unlink()
