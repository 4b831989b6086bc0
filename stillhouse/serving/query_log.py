"""The optional query log: Parquet files that appear complete, and the feedback on them.

Queries wait in memory until there are `ROWS` of them or `SECONDS` have passed. A kill loses only the waiting ones. A
disk that cannot be written never delays a search: queries that no longer fit in memory are dropped and counted.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.artifacts import sync
from stillhouse.serving.feedback_log import Feedback, FeedbackLog
from stillhouse.serving.log_folder import MARK, clear_old, is_own, named, take_folder
from stillhouse.serving.settings import Limits

SHOWN = 10
"""How many passages of an answer are kept."""
ROWS, SECONDS = 10_000, 300.0
KNOWN = 20_000
"""How many queries accept feedback: the newest ones."""
SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("asked_at", pa.timestamp("us", "UTC")),
        ("release", pa.string()),
        ("client", pa.string()),
        ("query", pa.string()),
        ("passage_ids", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float32())),
    ],
    MARK,
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
    """`sample`: the share of queries to keep. `days`: how long. `rows`, `seconds`: when to write a file."""

    sample: float = 1.0
    days: float = 30.0
    rows: int = ROWS
    seconds: float = SECONDS


@dataclass
class Counts:
    """Since the start: rows written, rows dropped, feedback received."""

    written: int = 0
    dropped: int = 0
    feedback: int = 0


@dataclass
class QueryLog:
    """The log in `folder`, used by one service at a time. Raises `InputError` if another one uses it.

    `log` gets a line if the log cannot be written.
    """

    folder: Path
    choices: LogChoices
    limits: Limits
    log: Callable[[str], None] = lambda line: None
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._held = take_folder(self.folder)
        self._feedback = FeedbackLog(self.folder, self.limits.feedback_bytes)
        self._waiting: list[Asked] = []
        self._known: OrderedDict[str, Asked] = OrderedDict()
        self._changed = threading.Condition()
        self._over = False
        self._clear()
        self._read_known()
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
            self._remember(asked)
            if len(self._waiting) < 2 * self.choices.rows:
                self._waiting.append(asked)
            else:
                self.counts.dropped += 1
            if len(self._waiting) >= self.choices.rows:
                self._changed.notify()
        return asked.query_id

    def find(self, query_id: str) -> Asked | None:
        """A query of the log, if it is among the newest `KNOWN`."""
        with self._changed:
            return self._known.get(query_id)

    def judge(self, asked: Asked, passage_id: str, kind: str, client: str) -> None:
        """Records feedback; returns once it is on the disk. Raises what `FeedbackLog.append` raises."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._feedback.append(
            Feedback(asked.query_id, asked.query, passage_id, kind, client, asked.release, at),
        )
        self.counts.feedback += 1

    def about(self) -> dict[str, Any]:
        """The content of `/info`."""
        with self._changed:
            return {
                "sample": self.choices.sample,
                "retention_days": self.choices.days,
                "waiting": len(self._waiting),
                "written": self.counts.written,
                "dropped": self.counts.dropped,
                "feedback": self.counts.feedback,
            }

    def end(self) -> None:
        """Writes the waiting queries, and releases the folder."""
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join(timeout=30)
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def _remember(self, asked: Asked) -> None:
        self._known[asked.query_id] = asked
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)

    def _read_known(self) -> None:
        """Reads the newest queries from the files, so that feedback on them is accepted after a restart."""
        newest: list[Asked] = []
        for path in filter(is_own, reversed(named(self.folder, ".parquet"))):
            try:
                rows = [Asked(**row) for row in pq.read_table(path, schema=SCHEMA).to_pylist()]
            except (pa.ArrowException, ValueError, OSError) as error:
                self.log(f"{path} is damaged, so its queries accept no feedback: {error}")
                continue
            newest += reversed(rows)
            if len(newest) >= KNOWN:
                break
        for asked in reversed(newest):
            self._remember(asked)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._over or len(self._waiting) >= self.choices.rows, self.choices.seconds
                )
                over, rows = self._over, self._waiting[: self.choices.rows]
            try:
                if rows:
                    self._write(rows)
            except Exception as error:  # the thread must survive a full disk
                self.log(f"the query log cannot be written: {error}")
                rows = []
                with self._changed:
                    self._changed.wait_for(lambda: self._over, min(1.0, self.choices.seconds))
                    over = self._over
            with self._changed:
                del self._waiting[: len(rows)]
                self.counts.written += len(rows)
            try:
                self._clear()
            except Exception as error:  # after the rows were removed, or they would be written again
                self.log(f"old files of the query log cannot be deleted: {error}")
            with self._changed:
                if over and (not rows or not self._waiting):
                    return

    def _write(self, rows: Sequence[Asked]) -> None:
        columns = {name: [getattr(row, name) for row in rows] for name in SCHEMA.names}
        name = f"queries-{rows[-1].asked_at:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}.parquet"
        partial = self.folder / f".{name}.partial"
        try:
            file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "wb") as sink:
                pq.write_table(pa.table(columns, SCHEMA), sink, compression="zstd")
                sink.flush()
                os.fsync(sink.fileno())
            partial.rename(self.folder / name)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        # The rows are in their file; with an error here they would be written again.
        with suppress(OSError):
            sync(self.folder)

    def _clear(self) -> None:
        clear_old(self.folder, self.choices.days, self.limits.queries_bytes)
