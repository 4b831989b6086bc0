"""Releases in Qdrant: a collection per release, and an alias of the live one. A folder opens the client's local mode,
for one process and small collections.

Shape suffixes: B rows of a batch, D width.
"""

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qdrant_client import QdrantClient, models

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import has_host
from stillhouse.serving.stores.store import Row, store_errors

SECRETS = "$QDRANT_API_KEY"
AT_ONCE = 256
"""Rows of a request: Qdrant refuses one above 32 MB."""
SECONDS = 60


class Qdrant:
    """A server, or a folder."""

    def __init__(self, place: str, name: str) -> None:
        self.address, self.name, self._notes = place, name, f"{name}_notes"
        with self._errors():
            if has_host(place):
                key = os.environ.get("QDRANT_API_KEY")
                self._client = QdrantClient(place, api_key=key, timeout=SECONDS, check_compatibility=False)
            else:
                self._client = QdrantClient(path=place)
        self._create(self._notes, {})

    def _errors(self) -> AbstractContextManager[None]:
        # The client has no error class of its own: it raises those of HTTP libraries, RuntimeError and ValueError.
        return store_errors(self.address, (Exception,), SECRETS)

    def _create(self, collection: str, vectors: Any) -> None:
        with self._errors():
            if self._client.collection_exists(collection):
                return
            try:
                self._client.create_collection(collection, vectors_config=vectors)
            except Exception:
                if not self._client.collection_exists(collection):  # another process was faster
                    raise

    def _points(self, collection: str, vectors: bool, **how: Any) -> Iterator[list[Any]]:
        after = None
        while True:
            with self._errors():
                found, after = self._client.scroll(
                    collection, limit=AT_ONCE, offset=after, with_payload=True, with_vectors=vectors, **how
                )
            if found:
                yield found
            if after is None:
                return

    def notes(self, kind: str) -> dict[str, Any]:
        of_kind = models.Filter(must=[models.FieldCondition(key="kind", match=models.MatchValue(value=kind))])
        parts = self._points(self._notes, False, scroll_filter=of_kind)
        return {point.payload["key"]: point.payload["value"] for part in parts for point in part}

    def note(self, kind: str, values: Mapping[str, Any]) -> None:
        new = [
            models.PointStruct(
                id=number(f"{kind} {key}"), vector={}, payload={"kind": kind, "key": key, "value": value}
            )
            for key, value in values.items()
            if value is not None
        ]
        gone: list[Any] = [number(f"{kind} {key}") for key, value in values.items() if value is None]
        with self._errors():
            if new:
                self._client.upsert(self._notes, new, wait=True)
            if gone:
                self._client.delete(self._notes, models.PointIdsList(points=gone), wait=True)

    def create(self, table: str, width: int) -> None:
        # The inner product: Qdrant would rewrite vectors that are compared by cosine.
        self._create(table, models.VectorParams(size=width, distance=models.Distance.DOT))

    def drop(self, table: str) -> None:
        with self._errors():
            self._client.delete_collection(table)

    def count(self, table: str) -> int:
        with self._errors():
            return int(self._client.count(table, exact=True).count)

    def put(self, table: str, rows: Sequence[Row], vectors_BD: NDArray[np.float32], fresh: bool = False) -> None:
        points = [
            models.PointStruct(id=number(row["passage_id"]), vector=vector_D.tolist(), payload=row)
            for row, vector_D in zip(rows, vectors_BD)
        ]
        with self._errors():
            for first in range(0, len(points), AT_ONCE):
                self._client.upsert(table, points[first : first + AT_ONCE], wait=True)

    def remove(self, table: str, passage_ids: Sequence[str]) -> None:
        gone: list[Any] = [number(each) for each in passage_ids]
        with self._errors():
            self._client.delete(table, models.PointIdsList(points=gone), wait=True)

    def finish(self, table: str) -> None:
        """Qdrant indexes by itself, and searches what is not indexed yet exactly."""

    def scan(self, table: str) -> Iterator[tuple[list[Row], NDArray[np.float32]]]:
        for part in self._points(table, True):
            yield [point.payload for point in part], np.array([point.vector for point in part], dtype=np.float32)

    def search(self, table: str, vector_D: NDArray[np.float32], top: int) -> list[tuple[Row, float]]:
        with self._errors():
            found = self._client.query_points(table, query=vector_D.tolist(), limit=top, with_payload=True).points
        return [(point.payload or {}, point.score) for point in found]

    def live(self) -> str:
        with self._errors():
            found = self._client.get_aliases().aliases
        return next((each.collection_name for each in found if each.alias_name == self.name), "")

    def swap(self, table: str) -> None:
        old = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=self.name))
        new = models.CreateAlias(collection_name=table, alias_name=self.name)
        changes: list[Any] = [*([old] if self.live() else []), models.CreateAliasOperation(create_alias=new)]
        with self._errors():
            if not self._client.collection_exists(table):
                raise InputError(f"{self.address} has no collection {table} any more; publish the release again")
            self._client.update_collection_aliases(changes)

    def locked(self, what: str, wait: bool = False) -> AbstractContextManager[None]:
        return nullcontext()  # what two processes write about the same passage has the same id


def number(text: str) -> str:
    """The id of a point: Qdrant takes only numbers and UUIDs."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, text))
