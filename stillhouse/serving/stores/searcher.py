"""Answers from the live release of a store, with the retriever that its vectors were made with; adds documents to it.

What is added or deleted is noted in the store before it is applied to the live table. Whoever opens or publishes
another table applies the notes that it lacks, so that no document is lost.

Shape suffixes: B documents of a batch, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stillhouse.core import context
from stillhouse.core.artifacts import model_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.titles import passage_text
from stillhouse.models.query_encoder import TextEncoder, open_passage_encoder, open_query_encoder
from stillhouse.search.searcher import Hit, refuse_not_finite
from stillhouse.search.vector_index import cut
from stillhouse.serving.stores.store import Row, Store, open_store, rows_of

RELEASE, DOCUMENT = "release", "document"
"""The kinds of notes."""
CHANGES = "changes"
"""The lock of those who add documents."""
AT_ONCE = 64
"""Documents encoded together."""
Encode = Callable[[Sequence[str]], NDArray[np.float32]]


class StoreSearcher:
    """Search in a store. `model` is the digest of the retriever that `queries` and `passages` belong to.

    Follows the live release as long as its vectors are of this model, and keeps the last such release otherwise. Raises
    `InputError` if the live release is of another model from the start, or if nothing is published.
    """

    def __init__(self, store: Store, model: str, queries: TextEncoder, passages: TextEncoder) -> None:
        self._store, self._model, self._queries, self._passages = store, model, queries, passages
        self._live = self.table = ""
        self.record: Mapping[str, Any] = {}
        self.follow()

    @classmethod
    def open(cls, retriever: str | PathLike[str], address: str) -> Self:
        """Opens a retriever's folder and the store that its release was published to."""
        context.hush_libraries()
        folder, how = Path(retriever), context.Context(context.work_root(), context.device(), quiet=True)
        model, queries = model_manifest(folder).digest, open_query_encoder(folder, how)
        return cls(open_store(address), model, queries, open_passage_encoder(folder, queries, how))

    def follow(self) -> None:
        """Moves to the release in use, unless its vectors are of another model."""
        live = self._store.live()
        if live == self._live != "":
            return
        where = f"{self._store.address}#{self._store.name}"
        if not live:
            raise InputError(f"no release is published in {where}; run `stillhouse publish RELEASE --to` this address")
        record = self._store.notes(RELEASE).get(live, {})
        if record.get("model") == self._model:
            self.table, self.record = live, record
            with self._store.locked(CHANGES, wait=True):
                self._apply(self._store.notes(DOCUMENT))
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
        [vector_D] = self._vectors(self._queries, [question])
        return [
            Hit(rank, score, row["passage_id"], row["title"], row["text"], row["fields"])
            for rank, (row, score) in enumerate(self.nearest(vector_D, top), 1)
        ]

    def _vectors(self, encoder: TextEncoder, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors_BD = encoder.vectors(encoder.tokenize(texts))
        refuse_not_finite(vectors_BD, texts)
        return cut(vectors_BD, self.record["width"], encoder.normalize)

    def add(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Adds documents, or replaces those with the same `passage_id`; found from then on.

        Each has `passage_id` and `text`, and may have `title`, `article_id`, `section` and `fields`. It is one passage:
        the model reads as much of it as of any other. Raises `InputError` as `rows_of` does.
        """
        self._change({row["passage_id"]: row for row in rows_of(documents)})

    def delete(self, passage_ids: Sequence[str]) -> None:
        """Deletes passages; ids that the store does not have are ignored."""
        self._change(dict.fromkeys(passage_ids))

    def _change(self, documents: Mapping[str, Row | None]) -> None:
        self.follow()
        with self._store.locked(CHANGES, wait=True):
            changes: dict[str, Any] = {key: {"row": row, "in": []} for key, row in documents.items()}
            self._store.note(DOCUMENT, changes)
            self._apply(changes)

    def _apply(self, changes: Mapping[str, Any]) -> None:
        apply_changes(self._store, partial(self._vectors, self._passages), self.table, self.record["titles"], changes)


def apply_changes(store: Store, encode: Encode, table: str, titles: str, changes: Mapping[str, Any]) -> None:
    """Applies the noted changes that a table lacks. `encode` gives the vectors of passages, whose titles are joined
    with their texts as `titles` says."""
    lacking = [(key, change) for key, change in changes.items() if table not in change["in"]]
    for start in range(0, len(lacking), AT_ONCE):
        part = dict(lacking[start : start + AT_ONCE])
        rows = [change["row"] for change in part.values() if change["row"]]
        gone = [key for key, change in part.items() if not change["row"]]
        if rows:
            store.put(table, rows, encode([passage_text(row["title"], row["text"], titles) for row in rows]))
        if gone:
            store.remove(table, gone)
        store.note(DOCUMENT, {key: change | {"in": [*change["in"], table]} for key, change in part.items()})
