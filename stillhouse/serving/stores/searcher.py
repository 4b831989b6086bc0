"""Answers from the live release of a store, with the retriever that its vectors were made with.

Shape suffixes: D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillhouse.core import context
from stillhouse.core.artifacts import MANIFEST, foreign_manifest, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.models.query_encoder import TextEncoder, open_query_encoder
from stillhouse.search.dense import refuse_not_finite
from stillhouse.search.searcher import Hit
from stillhouse.search.vector_index import cut
from stillhouse.serving.stores.store import Row, Store, open_store


class StoreSearcher:
    """Search in a store. `model` is the digest of the retriever that `queries` belongs to.

    Follows the live release as long as its vectors are of this model, and keeps the last such release otherwise. Raises
    `InputError` if the live release is of another model from the start, or if nothing is published.
    """

    def __init__(self, store: Store, model: str, queries: TextEncoder) -> None:
        self._store, self._model, self._queries = store, model, queries
        self._live = self.table = ""
        self.record: Mapping[str, Any] = {}
        self.follow()

    @classmethod
    def open(cls, retriever: str | PathLike[str], address: str) -> StoreSearcher:
        """Opens a retriever's folder and the store that its release was published to."""
        context.hush_libraries()
        folder, how = Path(retriever), context.Context(context.work_root(), context.device(), quiet=True)
        manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else foreign_manifest(folder)
        return cls(open_store(address), manifest.digest, open_query_encoder(folder, how))

    def follow(self) -> None:
        """Moves to the release in use, unless its vectors are of another model."""
        live = self._store.live()
        if live == self._live != "":
            return
        where = f"{self._store.address}#{self._store.name}"
        if not live:
            raise InputError(f"no release is published in {where}; run `stillhouse publish RELEASE --to` this address")
        record = self._store.notes().get(live, {})
        if record.get("model") == self._model:
            self.table, self.record = live, record
        elif not self.table:
            raise InputError(
                f"the vectors of the release in use in {where} are of another model ({str(record.get('model'))[:12]}) "
                f"than this retriever ({self._model[:12]}); publish this retriever's release, or use that one's"
            )
        self._live = live

    def nearest(self, vector_D: NDArray[np.float32], top: int) -> list[tuple[Row, float]]:
        """The `top` passages for a query's vector, best first, with their inner products."""
        return self._store.search(self.table, vector_D, top)

    def search(self, question: str, top: int = 10) -> list[Hit]:
        """The `top` best passages of the live release, best first."""
        if not question.strip():
            raise InputError("the question is empty; type a question")
        self.follow()
        vectors_QD = self._queries.vectors(self._queries.tokenize([question]))
        refuse_not_finite(vectors_QD, [question])
        [vector_D] = cut(vectors_QD, self.record["width"], self._queries.normalize)
        return [
            Hit(rank, score, row["passage_id"], row["title"], row["text"], row["fields"])
            for rank, (row, score) in enumerate(self.nearest(vector_D, top), 1)
        ]
