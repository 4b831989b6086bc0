"""The optional query log: Parquet files that appear complete, and the feedback on them (`feedback_log.py`).

Queries wait in memory until there are `ROWS` of them or `SECONDS` have passed. A crash loses only the waiting ones. A
disk that cannot be written never delays a search: what cannot be saved is dropped and counted.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.core.artifacts import sync
from stillhouse.core.errors import InputError
from stillhouse.core.lock import only_process
from stillhouse.serving.feedback_log import Feedback, FeedbackLog

SHOWN = 10
"""How many passages of an answer are kept."""
ROWS, SECONDS = 10_000, 300.0
KNOWN = 20_000
"""How many queries accept feedback: the newest ones."""
FILE_NAME = re.compile(r"(?:queries-(\d{8})T\d{12}-[0-9a-f]{8}\.parquet|feedback-(\d{8})\.jsonl)")
SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("asked_at", pa.timestamp("us", "UTC")),
        ("release", pa.string()),
        ("client", pa.string()),
        ("query", pa.string()),
        ("passage_ids", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float32())),
    ]
)


class Asked(NamedTuple):
    """An answered query: a row of the log."""

    query_id: str
    asked_at: datetime
    release: str
    client: str
    query: str
    passage_ids: list[str]
    scores: list[float]


@dataclass(frozen=True)
class LogChoices:
    """`sample`: the share of queries to keep. `days`: how long, in files of at most `most_bytes` together. `rows`,
    `seconds`: when to write a file."""

    sample: float = 1.0
    days: float = 30.0
    most_bytes: int = 1 << 30
    rows: int = ROWS
    seconds: float = SECONDS


@dataclass
class QueryLog:
    """The log in `folder`, used by one service at a time. Raises `InputError` if another one uses it.

    `log` gets a line if the log cannot be written. `counts` are the rows written and dropped, and the feedback.
    """

    folder: Path
    choices: LogChoices
    log: Callable[[str], None] = lambda line: None
    counts: dict[str, int] = field(default_factory=lambda: {"written": 0, "dropped": 0, "feedback": 0})

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._held = ExitStack()
        self._held.enter_context(only_process(self.folder / "log"))
        self._feedback = FeedbackLog(self.folder)
        self._waiting: list[Asked] = []
        self._known: OrderedDict[str, Asked] = OrderedDict()
        self._changed = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="query log", daemon=True)
        self._thread.start()

    def note(self, release: str, client: str, query: str, hits: Sequence[tuple[str, float]]) -> str | None:
        """Keeps an answered query and returns its id; None if it is not in the sample."""
        if random.random() >= self.choices.sample:
            return None
        shown = hits[:SHOWN]
        ids, scores = [id for id, _ in shown], [score for _, score in shown]
        asked = Asked(secrets.token_hex(12), datetime.now(UTC), release, client, query, ids, scores)
        with self._changed:
            self._waiting.append(asked)
            self._known[asked.query_id] = asked
            if len(self._known) > KNOWN:
                self._known.popitem(last=False)
            self._changed.notify()
        return asked.query_id

    def find(self, query_id: str) -> Asked | None:
        """A query in the log, if it is among the newest `KNOWN` since the service started."""
        with self._changed:
            return self._known.get(query_id)

    def judge(self, asked: Asked, passage_id: str, kind: str, client: str) -> None:
        """Records feedback; returns once it is on the disk. Raises `OSError` if it cannot be written."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._feedback.append(Feedback(asked.query_id, asked.query, passage_id, kind, client, asked.release, at))
        self.counts["feedback"] += 1

    def about(self) -> dict[str, Any]:
        """The content of `/info`."""
        with self._changed:
            choices = {"sample": self.choices.sample, "retention_days": self.choices.days}
            return choices | {"waiting": len(self._waiting)} | self.counts

    def end(self) -> None:
        """Writes the waiting queries, and releases the folder."""
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join(timeout=30)
        self._held.close()

    def _run(self) -> None:
        over = False
        while not over:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._over or len(self._waiting) >= self.choices.rows, self.choices.seconds
                )
                over, rows = self._over, self._waiting
                self._waiting = []
            try:
                if rows:
                    self._write(rows)
                clear_old(self.folder, self.choices.days, self.choices.most_bytes)
            except Exception as error:  # the thread must survive a full disk
                self.log(f"the query log cannot be written: {error}")

    def _write(self, rows: Sequence[Asked]) -> None:
        columns = {name: [getattr(row, name) for row in rows] for name in SCHEMA.names}
        name = f"queries-{rows[-1].asked_at:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}.parquet"
        partial = self.folder / ".queries.partial"
        saved = False
        try:
            with open(partial, "wb", opener=owner_only) as sink:
                pq.write_table(pa.table(columns, SCHEMA), sink, compression="zstd")
                sink.flush()
                os.fsync(sink.fileno())
            partial.rename(self.folder / name)
            saved = True
            sync(self.folder)
        finally:
            self.counts["written" if saved else "dropped"] += len(rows)


def read_asked(folder: Path) -> Iterator[tuple[str, str, str]]:
    """The text, client and time (ISO 8601) of every question in the files of a log, which a service may be writing.

    Raises `InputError` for a folder without any.
    """
    files = named(folder, ".parquet")
    if not files:
        raise InputError(f"{folder} holds no questions; give the folder that `stillhouse serve --log-queries` uses")
    for path in files:
        for row in pq.read_table(path, columns=["query", "client", "asked_at"]).to_pylist():
            yield row["query"], row["client"], row["asked_at"].isoformat()


def owner_only(path: str, flags: int) -> int:
    """Opens a file that only its owner can read."""
    return os.open(path, flags, 0o600)


def named(folder: Path, suffix: str) -> list[Path]:
    """The files of a log, oldest first."""
    return sorted(path for path in folder.glob(f"*{suffix}") if FILE_NAME.fullmatch(path.name))


def clear_old(folder: Path, days: float, most_bytes: int, now: datetime | None = None) -> list[Path]:
    """Deletes the log's files older than `days` days, then the oldest query files until the rest fit into `most_bytes`.

    Feedback is not deleted to make room for queries: it has its own limit.
    """
    last = f"{(now or datetime.now(UTC)) - timedelta(days=days):%Y%m%d}"
    queries, feedback = named(folder, ".parquet"), named(folder, ".jsonl")
    old = [path for path in (*queries, *feedback) if _day(path) < last]
    left = [path for path in queries if path not in old]
    while len(left) > 1 and sum(path.stat().st_size for path in left) > most_bytes:
        old.append(left.pop(0))
    for path in old:
        path.unlink()
    return old


def _day(path: Path) -> str:
    found = FILE_NAME.fullmatch(path.name)
    assert found
    return found[1] or found[2]
