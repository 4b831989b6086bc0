"""A release whose passages are searched in a store, by its own encoder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillhouse.core.context import Context
from stillhouse.corpus.sources.rows import Value
from stillhouse.search.documents import Ranking, best_of_documents
from stillhouse.serving.passages import Passages
from stillhouse.serving.release import Found, Ranked, Release
from stillhouse.serving.stores.searcher import StoreSearcher
from stillhouse.serving.stores.store import Row, Store


class StorePassages(Passages):
    """Passages of a store. Where those of a corpus have numbers, these are whole rows."""

    def __init__(self, count: int) -> None:
        self._count, self.field_types = count, pa.schema([])

    def __len__(self) -> int:
        return self._count

    def at(self, rows: Sequence[Any], *columns: str) -> list[dict[str, Any]]:
        return [{name: row[name] for name in columns} for row in rows]

    def fields_at(self, rows: Sequence[Any]) -> list[dict[str, Value]]:
        return [row["fields"] for row in rows]


class StoreRelease(Release):
    """Answers from the release in use in `store`, without BM25 and filters.

    Raises `InputError` as `Release` and `StoreSearcher` do.
    """

    filters = False

    def __init__(
        self,
        folders: Mapping[str, Path],
        store: Store,
        context: Context,
        precision: str = "fp32",
    ) -> None:
        # The fusion describes another search than that of the store.
        own = {name: folder for name, folder in folders.items() if name != "hybrid"}
        super().__init__(own, context, precision)
        self.store = store
        self.searcher = StoreSearcher(store, self.digests["retriever"], self._queries, self._passages)
        self.passages = StorePassages(self.searcher.record["passages"])

    def rank(self, texts: Sequence[str], vectors_QD: NDArray[np.float32], asked: Sequence[Ranked]) -> list[Found]:
        self.searcher.follow()
        found = []
        for vector_D, how in zip(vectors_QD, asked):
            seen: list[tuple[Row, float]] = []

            def ranked(depth: int, vector_D: NDArray[np.float32] = vector_D, seen: list[Any] = seen) -> Ranking:
                seen[:] = self.searcher.nearest(vector_D, depth)
                scores = np.array([[score for _, score in seen]], dtype=np.float32)
                return np.arange(len(seen), dtype=np.int32)[None], scores

            def documents_of(places: list[int], seen: list[Any] = seen) -> list[str]:
                return self.passages.documents_of([seen[place][0] for place in places])

            if self.by_document(how):
                places_1T, scores_1T = best_of_documents(ranked, documents_of, how.top, len(self.passages))
            else:
                places_1T, scores_1T = ranked(how.top)
            kept = [place for place in places_1T[0] if place >= 0]
            rows = [seen[place][0] for place in kept]
            found.append(Found(cast("list[int]", rows), scores_1T[0, : len(kept)].tolist()))
        return found

    def about(self) -> dict[str, Any]:
        """The content of `/info` about it."""
        place = {"address": f"{self.store.address}#{self.store.name}", "table": self.searcher.table}
        return super().about() | {"store": place, "index": None, "ranking": "the store's"}
