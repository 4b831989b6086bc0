"""The accepted passages of a source, written to Parquet as they come: memory holds only digests.

The rules about earlier passages (is this id known, and with this text; does this article exist) use digests, of at most
about 80 bytes per passage.

Shapes: P accepted passages, B passages or ids per call, K chosen rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillhouse.corpus.digest_numbers import DigestNumbers, GrowingArray, digests_of
from stillhouse.corpus.fields import FieldsFile, fields_as_text
from stillhouse.corpus.passage_ids import PIECE, own_articles
from stillhouse.corpus.schemas import SCHEMAS, UNIQUE
from stillhouse.corpus.sources.rows import Passage, Rejected, Row
from stillhouse.corpus.table_file import TableFile

COLUMNS = tuple(SCHEMAS["passages"].names)
assert Passage._fields[len(COLUMNS) :] == ("where", "fields"), "the columns come first, in order"
DIGESTS = ("id_high", "id_low", "article_high", "article_low", "content")
CHECKED = pa.schema(
    [
        *SCHEMAS["passages"],
        ("where", pa.string()),
        ("fields", pa.string()),
        ("at", pa.int64()),
        *((name, pa.uint64()) for name in DIGESTS),
    ]
)
"""A passage, its fields as text, its place among the rows of its source, and its digests."""
Placed = tuple[int, Row]
"""A row with its place."""


def checked_batch(kept: list[tuple[int, Passage]]) -> pa.RecordBatch:
    """Passages with their places as rows of `CHECKED`. All strings must be valid Unicode, and ids must not be empty."""
    if not kept:
        return pa.RecordBatch.from_pylist([], CHECKED)
    places, passages = zip(*kept)
    columns: dict[str, Any] = dict(zip((*COLUMNS, "where"), map(list, zip(*passages))))
    columns |= {"fields": fields_as_text([row.fields for row in passages]), "at": places}
    ids_B2 = digests_of(columns["passage_id"])
    articles_B2 = articles_of(ids_B2, columns["passage_id"], columns["article_id"])
    contents = (f"{len(title)} {title}{text}" for title, text in zip(columns["title"], columns["text"]))
    digests = (*ids_B2.T, *articles_B2.T, digests_of(list(contents))[:, 0])
    return pa.RecordBatch.from_pydict(columns | dict(zip(DIGESTS, digests)), schema=CHECKED)


class TakenPassages:
    """Passages by id, in source order. Call `add` and then `close`; after that they can be read.

    With `path` they are written there, as `passages.parquet` of a corpus; otherwise kept in memory. `where` is dropped.
    Their fields, if any has some, are in `fields`.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._file = TableFile(path, SCHEMAS["passages"], UNIQUE["passages"])
        self.fields = FieldsFile(path and path.with_name(f"{path.name}.fields"))
        self._ids = DigestNumbers()
        self._contents = GrowingArray(np.uint64)
        # A passage may be its own article; `_articles` are the articles of all other passages.
        self._is_article, self._articles = GrowingArray(np.bool_), DigestNumbers()

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        for block in self.blocks("passage_id"):
            yield from block.column(0).to_pylist()

    def values(self) -> Iterator[Passage]:
        for block in self.blocks():
            yield from map(Passage, *(column.to_pylist() for column in block.columns), repeat(""))

    @property
    def articles(self) -> int:
        """The number of different article ids."""
        own_B2 = self._ids.digests[self._is_article.array]
        return len(self._articles) + int((self._articles.find(own_B2) < 0).sum())

    def add(self, batch: pa.RecordBatch) -> list[Placed]:
        """Accepts the passages of a batch of `CHECKED` with a new id. Returns the others as rejected rows."""
        rows = pa.Table.from_batches([batch])
        ids_B2, articles_B2 = _digests(rows, "id"), _digests(rows, "article")
        contents_B, fields_B = rows.column("content").to_numpy(), rows.column("fields").combine_chunks()
        reasons = self._add(rows.select(COLUMNS), ids_B2, articles_B2, contents_B, fields_B)
        found: list[Placed] = []
        for place, reason in enumerate(reasons):
            if reason:
                row = {name: rows.column(name)[place].as_py() for name in ("at", "passage_id", "where", "text")}
                found.append((row["at"], Rejected("passage", row["passage_id"], reason, row["where"], row["text"])))
        return found

    def _add(
        self,
        rows: pa.Table,
        ids_B2: NDArray[np.uint64],
        articles_B2: NDArray[np.uint64],
        contents_B: NDArray[np.uint64],
        fields_B: pa.Array,
    ) -> list[str]:
        """Accepts the rows with a new id, given with the digests of their ids, articles and contents, and with their
        fields as text. Returns for each why it was rejected, or "".
        """
        before = len(self)
        rows_B = self._ids.add(ids_B2)
        # A new id has a larger number than all earlier ids.
        new_B = rows_B > np.maximum.accumulate(np.append(before - 1, rows_B))[:-1]
        self._contents.append(contents_B[new_B])
        own_B = (articles_B2 == ids_B2).all(axis=1)
        self._is_article.append(own_B[new_B])
        self._articles.add(articles_B2[new_B & ~own_B])
        if new_B.all():
            self._file.write_rows(rows)
            self.fields.write(fields_B)
            return [""] * len(rows)
        self._file.write_rows(rows.filter(pa.array(new_B)))
        self.fields.write(fields_B.filter(pa.array(new_B)))
        same_B = self._contents.array[rows_B] == contents_B
        return [
            "" if new else "duplicate id, same text" if same else "duplicate id, different text"
            for new, same in zip(new_B.tolist(), same_B.tolist())
        ]

    def close(self) -> None:
        """Ends the adding of passages."""
        self._file.close()
        self.fields.close()

    def rows_of(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The 0-based row of each passage id, int64 [B]; -1 for an unknown id."""
        return self._ids.find(digests_of(ids))

    def has_articles(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Whether each article id belongs to a passage, bool [B]."""
        asked_B2 = digests_of(ids)
        rows_B = self._ids.find(asked_B2)
        found_B = self._articles.find(asked_B2) >= 0
        found_B[rows_B >= 0] |= self._is_article.array[rows_B[rows_B >= 0]]
        return found_B

    def of_documents(self, ids: Iterable[str]) -> dict[str, list[str]]:
        """The passages of each of these articles, and the pieces `<id>#k` of each of these passages, if there are any.

        Reads all ids.
        """
        wanted = pa.array(list(ids), pa.string())
        found: dict[str, dict[str, None]] = {}
        for block in self.blocks("passage_id", "article_id") if len(wanted) else ():
            passages, articles = block.columns
            for owners in (articles, pc.replace_substring_regex(passages, PIECE, "")):
                own = pc.is_in(owners, value_set=wanted)
                for owner, passage in zip(owners.filter(own).to_pylist(), passages.filter(own).to_pylist()):
                    found.setdefault(owner, {})[passage] = None
        return {owner: list(passages) for owner, passages in found.items()}

    def blocks(self, *columns: str) -> Iterator[pa.RecordBatch]:
        """All passages in order, in blocks of some thousands; all columns, or the given ones."""
        return self._file.blocks(columns or COLUMNS)

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of all passages."""
        return self._file.column(name)

    def texts(self) -> Iterator[str]:
        """The text of every passage, in order."""
        for block in self.blocks("text"):
            yield from block.column(0).to_pylist()

    def texts_of(self, rows_K: NDArray[np.integer]) -> list[str]:
        """The texts of some rows, in the order of `rows_K`. Reads all texts, but keeps only these."""
        asked, place_K = np.unique(rows_K, return_inverse=True)
        found: list[str] = []
        begin = 0
        for block in self.blocks("text"):
            first, end = np.searchsorted(asked, [begin, begin + len(block)])
            found += block.column(0).take(pa.array(asked[first:end] - begin)).to_pylist()
            begin += len(block)
        return [found[place] for place in place_K.tolist()]

    def own_articles(self) -> pa.ChunkedArray:
        """The article id of each passage, or its own id if it has no article."""
        articles, ids = self.column("article_id"), self.column("passage_id")
        return own_articles(ids, articles)

    def kept(self, mask_P: NDArray[np.bool_]) -> "TakenPassages":
        """The passages that a mask selects; their file replaces the old one."""
        path = self._file.path
        chosen = TakenPassages(path and path.with_name(f"{path.name}.kept"))
        begin = 0
        for block, fields_B in zip(self.blocks(), self.fields.blocks()):
            own, mask_B = slice(begin, begin + len(block)), mask_P[begin : begin + len(block)]
            rows = pa.Table.from_batches([block.filter(pa.array(mask_B))])
            ids_B2, contents_B = self._ids.digests[own][mask_B], self._contents.array[own][mask_B]
            articles_B2 = articles_of(ids_B2, *(rows[name].to_pylist() for name in ("passage_id", "article_id")))
            chosen._add(rows, ids_B2, articles_B2, contents_B, fields_B.filter(pa.array(mask_B)))
            begin += len(block)
        chosen.close()
        self.fields.remove()
        if path is not None:
            chosen._file.move(path)
        return chosen


def _digests(rows: pa.Table, name: str) -> NDArray[np.uint64]:
    return np.stack([rows.column(f"{name}_{half}").to_numpy() for half in ("high", "low")], axis=1)


def articles_of(ids_B2: NDArray[np.uint64], ids: Sequence[str], articles: Sequence[str]) -> NDArray[np.uint64]:
    """The digests of the articles of passages, uint64 [B, 2]; most passages are their own article."""
    other_B = np.array([article != id for id, article in zip(ids, articles)], dtype=np.bool_)
    digests_B2 = ids_B2.copy()
    digests_B2[other_B] = digests_of([article for article, other in zip(articles, other_B) if other])
    return digests_B2
