"""Releases in PostgreSQL with pgvector: a table per release, and a view of the live one that any client can read.

Shape suffixes: B rows of a batch, D width.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector.psycopg import register_vector
from psycopg.sql import SQL, Composed, Identifier, Literal
from psycopg.types.json import Jsonb

from stillhouse.core.errors import InputError
from stillhouse.serving.stores.store import TEXTS, Row, store_errors

SECRETS = "$PGPASSWORD or ~/.pgpass"
COLUMNS = (*TEXTS, "fields", "embedding")
TYPES = ("text", "text", "text", "text", "text", "jsonb", "vector")
WIDEST = 2000
"""The most dimensions that pgvector can index; wider vectors are compared one by one."""
LINKS, LINKED_AMONG = 32, 128
"""Of HNSW, `m` and `ef_construction`. With pgvector's own 16 and 64, a search of 10⁶ passages finds 0.88 of the ten
best instead of 0.97 (benchmarks/serving.md)."""
LEAST_LOOKED_AT, MOST_LOOKED_AT = 400, 1000
"""Candidates of an approximate search (`hnsw.ef_search`); pgvector allows 1,000."""
CREATE_NOTES = "CREATE TABLE IF NOT EXISTS {notes} (kind text, key text, value jsonb, PRIMARY KEY (kind, key))"
SECONDS = 5.0
"""How long to wait for a lock; a killed process loses its own within a second."""
Result = TypeVar("Result")


class Postgres:
    """A database. Its connection is opened again when the server was restarted."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.name = address, name
        self._notes, self._looked_at = Identifier(f"{name}_notes"), 0
        self._opened: psycopg.Connection | None = None
        self._alone = threading.RLock()  # a statement of another thread would become part of our transaction
        self._run("SELECT 1")

    def _connection(self) -> psycopg.Connection:
        if self._opened is None or self._opened.closed:
            # No prepared statements, which would not survive a swap of the view or a pool between us.
            opened = psycopg.connect(self.address, autocommit=True, prepare_threshold=None, connect_timeout=10)
            opened.execute("SET client_connection_check_interval = 1000")
            opened.execute("SET client_min_messages = warning")
            with opened.transaction():
                # Two processes that create the same thing at once would fail, in spite of IF NOT EXISTS.
                opened.execute("SELECT pg_advisory_xact_lock(hashtext('stillhouse'))")
                opened.execute("CREATE EXTENSION IF NOT EXISTS vector")
                opened.execute(self._sql(CREATE_NOTES))
            register_vector(opened)
            self._opened, self._looked_at = opened, 0
        return self._opened

    def _do(self, action: Callable[[psycopg.Connection], Result]) -> Result:
        with self._alone, store_errors(self.address, (psycopg.Error,), SECRETS):
            return action(self._connection())

    def _sql(self, text: str, table: str = "") -> Composed:
        names = {"notes": self._notes, "table": Identifier(table or "-"), "view": Identifier(self.name)}
        return SQL(text).format(
            **names, index=Identifier(f"{table}_embedding"), columns=SQL(", ").join(map(Identifier, COLUMNS))
        )

    def _run(self, text: str, *values: Any, table: str = "") -> list[tuple[Any, ...]]:
        def run(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
            cursor = connection.execute(self._sql(text, table), values or None)
            return cursor.fetchall() if cursor.description else []

        return self._do(run)

    def notes(self, kind: str) -> dict[str, Any]:
        return dict(self._run("SELECT key, value FROM {notes} WHERE kind = %s", kind))

    def note(self, kind: str, values: Mapping[str, Any]) -> None:
        def write(connection: psycopg.Connection) -> None:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(self._sql("DELETE FROM {notes} WHERE kind = %s AND key = ANY(%s)"), (kind, list(values)))
                rows = [(kind, key, Jsonb(value)) for key, value in values.items() if value is not None]
                cursor.executemany(self._sql("INSERT INTO {notes} VALUES (%s, %s, %s)"), rows)

        self._do(write)

    def create(self, table: str, width: int) -> None:
        columns = ", ".join(f"{name} {type}" for name, type in zip(COLUMNS, TYPES))
        text = f"CREATE TABLE IF NOT EXISTS {{table}} ({columns}({width}) NOT NULL, PRIMARY KEY (passage_id))"
        self._run(text, table=table)

    def drop(self, table: str) -> None:
        self._run("DROP TABLE IF EXISTS {table}", table=table)

    def count(self, table: str) -> int:
        return int(self._run("SELECT count(*) FROM {table}", table=table)[0][0])

    def put(self, table: str, rows: Sequence[Row], vectors_BD: NDArray[np.float32], fresh: bool = False) -> None:
        def write(connection: psycopg.Connection) -> None:
            with connection.transaction(), connection.cursor() as cursor:
                if not fresh:
                    self._delete(cursor, table, [row["passage_id"] for row in rows])
                into = self._sql("COPY {table} ({columns}) FROM STDIN WITH (FORMAT BINARY)", table)
                with cursor.copy(into) as copy:
                    copy.set_types(TYPES)
                    for row, vector_D in zip(rows, vectors_BD):
                        copy.write_row([*(row[name] for name in TEXTS), Jsonb(row["fields"]), vector_D])

        self._do(write)

    def _delete(self, cursor: psycopg.Cursor, table: str, passage_ids: Sequence[str]) -> None:
        cursor.execute(self._sql("DELETE FROM {table} WHERE passage_id = ANY(%s)", table), (list(passage_ids),))

    def remove(self, table: str, passage_ids: Sequence[str]) -> None:
        self._do(lambda connection: self._delete(connection.cursor(), table, passage_ids))

    def finish(self, table: str) -> None:
        found = self._run("SELECT vector_dims(embedding) FROM {table} LIMIT 1", table=table)
        if found and found[0][0] <= WIDEST:
            text = "CREATE INDEX IF NOT EXISTS {index} ON {table} USING hnsw (embedding vector_ip_ops)"
            self._run(f"{text} WITH (m = {LINKS}, ef_construction = {LINKED_AMONG})", table=table)

    def scan(self, table: str) -> Iterator[tuple[list[Row], NDArray[np.float32]]]:
        with store_errors(self.address, (psycopg.Error,), SECRETS):
            connection = self._connection()
            with connection.transaction(), connection.cursor("scan", binary=True) as cursor:
                cursor.execute(self._sql("SELECT {columns} FROM {table}", table))
                while found := cursor.fetchmany(1000):
                    yield [row_of(each) for each in found], np.stack([each[-1].to_numpy() for each in found])

    def search(self, table: str, vector_D: NDArray[np.float32], top: int) -> list[tuple[Row, float]]:
        looked_at = min(MOST_LOOKED_AT, max(LEAST_LOOKED_AT, top))

        def search(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
            if looked_at > self._looked_at:
                connection.execute(SQL("SET hnsw.ef_search = {}").format(Literal(looked_at)))
                self._looked_at = looked_at
            text = "SELECT {columns}, embedding <#> %s AS distance FROM {table} ORDER BY distance LIMIT %s"
            return connection.execute(self._sql(text, table), (vector_D, top)).fetchall()

        return [(row_of(each), -each[-1]) for each in self._do(search)]

    def live(self) -> str:
        return str(self.notes("live").get("table", ""))

    def swap(self, table: str) -> None:
        def swap(connection: psycopg.Connection) -> None:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"{self.name} swap",))
                # The width of the vectors may differ, which CREATE OR REPLACE refuses. Readers wait for this moment.
                connection.execute(self._sql("DROP VIEW IF EXISTS {view}"))
                connection.execute(self._sql("CREATE VIEW {view} AS SELECT * FROM {table}", table))
                self.note("live", {"table": table})

        self._do(swap)

    @contextmanager
    def locked(self, what: str, wait: bool = False) -> Iterator[None]:
        key, until = f"{self.name} {what}", time.monotonic() + SECONDS
        while not self._run("SELECT pg_try_advisory_lock(hashtext(%s))", key)[0][0]:
            if time.monotonic() > until and not wait:
                raise InputError(f"another process is writing {what} in {self.address}; repeat this when it has ended")
            time.sleep(0.05)
        try:
            yield
        finally:
            if self._opened and not self._opened.closed:  # the lock ends with the connection
                self._run("SELECT pg_advisory_unlock(hashtext(%s))", key)


def row_of(values: Sequence[Any]) -> Row:
    """The row of the columns before the vector."""
    return dict(zip(COLUMNS[:-1], values))
