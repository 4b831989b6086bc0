"""Releases in LanceDB, a folder or a bucket: a table per release, and a note of the live one.

Shape suffixes: B rows of a batch, D width.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillhouse.core.lock import only_process
from stillhouse.serving.stores.store import TEXTS, Row, store_errors

SECRETS = "the environment variables of the bucket, such as $AWS_ACCESS_KEY_ID"
NOTES = pa.schema([("id", pa.string()), ("kind", pa.string()), ("key", pa.string()), ("value", pa.string())])
INDEXED_FROM = 1 << 17
"""Smaller tables are searched exactly."""
LOOKED_AT = 10
"""How many times the wanted passages an approximate search compares exactly."""


class Lance:
    """A database."""

    def __init__(self, place: str, name: str) -> None:
        self.address, self.name, self._notes = place, name, f"{name}_notes"
        with self._errors():
            self._database: Any = lancedb.connect(place)
            self._database.create_table(self._notes, schema=NOTES, exist_ok=True)

    def _errors(self) -> AbstractContextManager[None]:
        return store_errors(self.address, (OSError, RuntimeError, ValueError), SECRETS)

    def _table(self, table: str) -> Any:
        return self._database.open_table(table)

    def notes(self, kind: str) -> dict[str, Any]:
        with self._errors():
            found = self._table(self._notes).search().where(f"kind = {quoted(kind)}").to_arrow().to_pylist()
        return {row["key"]: json.loads(row["value"]) for row in found}

    def note(self, kind: str, values: Mapping[str, Any]) -> None:
        new = [
            {"id": f"{kind} {key}", "kind": kind, "key": key, "value": json.dumps(value)}
            for key, value in values.items()
            if value is not None
        ]
        gone = [f"{kind} {key}" for key, value in values.items() if value is None]
        with self._errors():
            if new:
                self._merge(self._notes, "id", pa.Table.from_pylist(new, NOTES))
            if gone:
                self._table(self._notes).delete(f"id IN ({', '.join(map(quoted, gone))})")

    def _merge(self, table: str, key: str, rows: pa.Table) -> None:
        merge = self._table(table).merge_insert(key)
        merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def create(self, table: str, width: int) -> None:
        columns = [(name, pa.string()) for name in (*TEXTS, "fields")]
        with self._errors():
            schema = pa.schema([*columns, ("vector", pa.list_(pa.float32(), width))])
            self._database.create_table(table, schema=schema, exist_ok=True)

    def drop(self, table: str) -> None:
        with self._errors():
            self._database.drop_table(table, ignore_missing=True)

    def count(self, table: str) -> int:
        with self._errors():
            return int(self._table(table).count_rows())

    def put(self, table: str, rows: Sequence[Row], vectors_BD: NDArray[np.float32], fresh: bool = False) -> None:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(vectors_BD.ravel()), vectors_BD.shape[1])
        columns: dict[str, Any] = {name: pa.array([row[name] for row in rows], pa.string()) for name in TEXTS}
        columns["fields"] = pa.array([json.dumps(row["fields"]) for row in rows])
        written = pa.table(columns | {"vector": vectors})
        with self._errors():
            if fresh:
                self._table(table).add(written)
            else:
                self._merge(table, "passage_id", written)

    def remove(self, table: str, passage_ids: Sequence[str]) -> None:
        with self._errors():
            self._table(table).delete(f"passage_id IN ({', '.join(map(quoted, passage_ids))})")

    def finish(self, table: str) -> None:
        with self._errors():
            opened = self._table(table)
            if opened.count_rows() >= INDEXED_FROM and not opened.list_indices():
                opened.create_index(metric="dot", index_type="IVF_HNSW_SQ")

    def scan(self, table: str) -> Iterator[tuple[list[Row], NDArray[np.float32]]]:
        with self._errors():
            for batch in self._table(table).search().to_batches(1000):
                rows = batch.to_pylist()
                yield [row_of(row) for row in rows], np.array([row["vector"] for row in rows], dtype=np.float32)

    def search(self, table: str, vector_D: NDArray[np.float32], top: int) -> list[tuple[Row, float]]:
        with self._errors():
            asked = self._table(table).search(vector_D).distance_type("dot").refine_factor(LOOKED_AT)
            found = asked.limit(top).to_arrow().to_pylist()
        # LanceDB's distance is one less the inner product.
        return [(row_of(row), 1 - row["_distance"]) for row in found]

    def live(self) -> str:
        return str(self.notes("live").get("table", ""))

    def swap(self, table: str) -> None:
        with self._errors():
            self._table(table)
        self.note("live", {"table": table})

    def locked(self, what: str, wait: bool = False) -> AbstractContextManager[None]:
        if "://" in self.address:
            return nullcontext()
        return only_process(Path(self.address) / what, (lambda line: None) if wait else None)


def quoted(text: str) -> str:
    """A string of LanceDB's SQL."""
    return "'" + text.replace("'", "''") + "'"


def row_of(found: Mapping[str, Any]) -> Row:
    return {name: found[name] for name in TEXTS} | {"fields": json.loads(found["fields"])}
