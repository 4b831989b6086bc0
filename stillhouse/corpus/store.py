"""The Parquet form of a corpus (docs/reference/formats.md): the writer, and the reader that every step shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillhouse.core.artifacts import MANIFEST, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.articles import offsets_of
from stillhouse.corpus.fields import FILE as FIELDS_FILE
from stillhouse.corpus.fields import present
from stillhouse.corpus.passage_ids import PIECE, PassageIds, own_articles, unreadable
from stillhouse.corpus.schemas import DEFAULTS, SCHEMAS, SPARSE, SPLITS, TABLES, UNIQUE, Columns
from stillhouse.corpus.sources.rows import Value
from stillhouse.corpus.table_file import TableFile, TextFile
from stillhouse.corpus.titles import SPACE, TITLES, passage_text

if TYPE_CHECKING:
    import pandas as pd  # imported only where needed, so that a search starts faster


def passage_texts(corpus: Corpus) -> list[str]:
    """The text of every passage as models read it, joined with its title as the corpus says, in row order."""
    return list(read_passage_texts(corpus))


def read_passage_texts(corpus: Corpus) -> Iterator[str]:
    """The text of every passage as models read it, one at a time: for a corpus of any size."""
    for block in passage_text_blocks(corpus):
        yield from block


def passage_text_blocks(corpus: Corpus, among: NDArray[np.integer] | None = None) -> Iterator[list[str]]:
    """The text of every passage as models read it, in blocks; or only of the rows `among`, ascending and unique."""
    for block in corpus.passage_blocks("title", "text", among=among):
        yield [passage_text(*both, corpus.titles) for both in zip(block["title"].array, block["text"].array)]


@doing("reading the passages")
def open_passage_texts(corpus: Corpus, work: Path, among: NDArray[np.integer] | None = None) -> TextFile:
    """The text of every passage as models read it, or only of the rows `among`, by row, in an unnamed file in `work`.

    Rows in `among` may repeat, and -1, which stands for no passage, is ignored.
    """
    if among is None:
        return TextFile(passage_text_blocks(corpus), work)
    among = np.unique(among[among >= 0])
    return TextFile(passage_text_blocks(corpus, among), work, among)


def write_tables(folder: Path, tables: Mapping[str, Columns]) -> None:
    """Writes every table of a corpus as `<table>.parquet`; a table that is left out is written empty.

    `tables` maps a name in `SCHEMAS` or `SPARSE` to its columns; columns in `DEFAULTS` may be missing. The same columns
    give the same bytes.
    """
    unknown = tables.keys() - SCHEMAS.keys() - SPARSE.keys()
    assert not unknown, f"unknown tables: {sorted(unknown)}"
    for name in (*SCHEMAS, *(tables.keys() & SPARSE.keys())):
        write_table(folder, name, tables.get(name, {}))


def write_table(folder: Path, name: str, columns: Columns) -> None:
    """Writes one table; without columns it is empty."""
    schema = TABLES[name]
    columns = columns or {column: [] for column in schema.names}
    rows = len(next(iter(columns.values())))
    file = TableFile(folder / f"{name}.parquet", schema, UNIQUE.get(name, ()))
    file.write({column: [value] * rows for column, value in DEFAULTS.get(name, {}).items()} | dict(columns))
    file.close()


def write_rows(folder: Path, name: str, rows: Iterable[Sequence[object]]) -> None:
    """Writes one table of rows that have all columns, in their order."""
    write_table(folder, name, dict(zip(TABLES[name].names, map(list, zip(*rows)))))


MOST_A_DOCUMENT = 5
"""At most this many passages for each document make a run deeper."""


def _table(name: str) -> cached_property[pd.DataFrame]:
    """A table of a corpus, read on first use."""
    return cached_property(lambda corpus: corpus._read(name))


@dataclass(frozen=True)
class Corpus:
    """A corpus folder. Tables are read on first use and kept in memory.

    A *row* is a 0-based row number of `passages`. Query ids are unique over all splits; a query may have the same id
    as a passage.
    """

    folder: Path

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Corpus:
        """Opens a corpus folder. Raises `InputError` if a table is missing."""
        folder = Path(folder)
        missing = [name for name in SCHEMAS if not (folder / f"{name}.parquet").is_file()]
        if missing:
            raise InputError(f"{folder} is not a corpus: it lacks {missing[0]}.parquet; `stillhouse ingest` writes one")
        return cls(folder)

    def __fspath__(self) -> str:
        return str(self.folder)

    def _read(self, name: str) -> pd.DataFrame:
        with self._open(name) as file:
            return file.read().to_pandas()

    @contextmanager
    def _open(self, name: str) -> Iterator[pq.ParquetFile]:
        """Opens a table's file. Raises `InputError` if it is damaged or has wrong columns."""
        path = self.folder / f"{name}.parquet"
        try:
            # ParquetFile, because pq.read_table would take a folder name like `key=value` for a partition column.
            with pq.ParquetFile(path) as file:
                if name in TABLES and not file.schema_arrow.equals(TABLES[name]):
                    raise InputError(f"{path} has columns {file.schema_arrow.names}; run `stillhouse ingest` again")
                yield file
        except (pa.ArrowInvalid, OSError) as error:
            raise unreadable(path, error, "run `stillhouse ingest` again") from None

    @cached_property
    def passage_count(self) -> int:
        """The number of passages, without reading them."""
        with self._open("passages") as file:
            return int(file.metadata.num_rows)

    def passage_blocks(
        self, *columns: str, rows: int = 8192, among: NDArray[np.integer] | None = None
    ) -> Iterator[pd.DataFrame]:
        """Some columns of the passages in order, in blocks of `rows` (fewer at the end of a row group).

        With `among`, only these rows, which must be ascending and unique; row groups without any are not read.
        """
        for block in self._passage_batches(*columns, rows=rows, among=among):
            yield block.to_pandas()

    def _passage_batches(
        self, *columns: str, rows: int = 8192, among: NDArray[np.integer] | None = None, table: str = "passages"
    ) -> Iterator[pa.RecordBatch]:
        first = 0
        with self._open(table) as file:
            for group in range(file.num_row_groups):
                end = first + file.metadata.row_group(group).num_rows
                if among is None or np.diff(np.searchsorted(among, (first, end)))[0]:
                    for block in file.iter_batches(rows, row_groups=[group], columns=list(columns)):
                        chosen = block
                        if among is not None:
                            begin, stop = np.searchsorted(among, (first, first + len(block)))
                            chosen = block.take(_as_arrow(among[begin:stop] - first))
                        first += len(block)
                        if len(chosen):
                            yield chosen
                first = end

    def passages_at(self, rows: NDArray[np.integer], *columns: str) -> pd.DataFrame:
        """Some columns of the passages `rows`, in this order and numbered from 0; reads only the row groups needed."""
        return self.passage_table(rows, *columns).to_pandas()

    def passage_table(self, rows: NDArray[np.integer], *columns: str) -> pa.Table:
        """`passages_at` as an Arrow table."""
        return self._rows_of_table("passages", pa.schema([SCHEMAS["passages"].field(name) for name in columns]), rows)

    def _rows_of_table(self, table: str, schema: pa.Schema, rows: NDArray[np.integer]) -> pa.Table:
        wanted = np.unique(rows)
        found = pa.Table.from_batches(self._passage_batches(*schema.names, among=wanted, table=table), schema)
        return found.take(_as_arrow(np.searchsorted(wanted, rows)))

    @cached_property
    def field_types(self) -> pa.Schema:
        """The names and types of the passages' fields; empty for a corpus without fields."""
        if not (self.folder / FIELDS_FILE).is_file():
            return pa.schema([])
        with self._open("fields") as file:
            return file.schema_arrow

    @cached_property
    def fields(self) -> pa.Table:
        """The fields of all passages, in row order; without columns for a corpus without fields."""
        return pa.Table.from_batches(self.field_batches(), self.field_types)

    def field_batches(self) -> Iterator[pa.RecordBatch]:
        """`fields` in parts, for a corpus of any size."""
        return self._passage_batches(*self.field_types.names, table="fields") if self.field_types.names else iter(())

    def fields_at(self, rows: NDArray[np.integer]) -> list[dict[str, Value]]:
        """The fields of the passages `rows`, without null; reads only the row groups needed."""
        if not self.field_types.names:
            return [{} for _ in rows]
        return present(self._rows_of_table("fields", self.field_types, rows).to_pylist())

    @cached_property
    def titles(self) -> str:
        """How titles and texts are joined: one of `TITLES` from the manifest, or `space` in a folder without one.

        Raises `InputError` for an unknown value.
        """
        titles = self.facts.get("titles", SPACE)
        if titles not in TITLES:
            path = self.folder / MANIFEST
            raise InputError(f"{path}: titles has the unknown value {titles!r}; run `stillhouse ingest` again")
        return str(titles)

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """The facts of the manifest; none in a folder without one."""
        return read_manifest(self.folder, verify=False).facts if (self.folder / MANIFEST).is_file() else {}

    @property
    def judges_whole_passages(self) -> bool:
        """Whether qrels name passages that were split, and no articles."""
        return bool(self.facts.get("split_passages_judged"))

    @cached_property
    def documents(self) -> NDArray[np.int32] | None:
        """The number of each passage's document, int32 [passages]; None unless qrels name documents.

        It is the passage's article or, if qrels name passages that were split and no articles, the passage it is of.
        """
        if not self.facts.get("documents"):
            return None
        if self.judges_whole_passages:
            [ids] = pa.Table.from_batches(self._passage_batches("passage_id")).columns
            own = pc.replace_substring_regex(ids, PIECE, "")
            spans = [pc.is_valid(self.fields[name]) for name in ("begin", "end") if name in self.field_types.names]
            own = pc.if_else(pc.and_(*spans), own, ids) if len(spans) == 2 else own
        else:
            blocks = self._passage_batches("passage_id", "article_id")
            own = pa.chunked_array([own_articles(*block.columns) for block in blocks])
        return own.combine_chunks().dictionary_encode().indices.to_numpy()

    @cached_property
    def document_count(self) -> int:
        """The number of documents if qrels name documents, else of passages."""
        return self.passage_count if self.documents is None else int(self.documents.max()) + 1

    def run_depth(self, depth: int) -> int:
        """How many passages a run of `depth` has: more if qrels name documents, since a document has several."""
        return round(depth * min(self.passage_count / max(1, self.document_count), MOST_A_DOCUMENT))

    passages = _table("passages")
    """passage_id, title, text, article_id, section, position. For small corpora; read others in blocks."""
    links = _table("links")
    """source, target: article ids."""
    queries = _table("queries")
    """query_id, text, split, origin (`source`, a pair task or `generated`), taken_from (a passage id, or "")."""
    qrels = _table("qrels")
    """query_id, passage_id, relevance, split."""
    answers = _table("answers")
    """query_id, answer, kind (`text` or `regex`), split; empty for a corpus without answers."""
    rejected = _table("rejected")
    """kind, id, reason, where, content: every rejected row of the source."""

    @cached_property
    def passage_ids(self) -> PassageIds:
        """The passage ids in row order, which are not kept in memory."""
        return PassageIds(self.folder / "passages.parquet")

    @cached_property
    def not_prose(self) -> Mapping[str, str]:
        """{passage id: `code` or `table`} of the passages that no question is made from."""
        if not (self.folder / "not_prose.parquet").is_file():
            return {}
        table = self._read("not_prose")
        return dict(zip(table["passage_id"], table["kind"]))

    @cached_property
    def unjudged(self) -> pd.DataFrame:
        """query_id, text: the questions of the source that have no label."""
        if not (self.folder / "unjudged.parquet").is_file():
            return self.queries[["query_id", "text"]][:0]
        return self._read("unjudged")

    def rows_of(self, passage_ids: Iterable[str]) -> NDArray[np.int32]:
        """The row of each passage id, int32; reads all ids once. Raises `InputError` for an unknown id."""
        wanted = np.array(list(passage_ids), dtype=object)
        rows = self.passage_ids.find(wanted)
        if (rows < 0).any():
            raise InputError(f"the corpus {self.folder} has no passage {wanted[rows < 0][0]!r}")
        return rows.astype(np.int32)

    def queries_of(self, split: str) -> pd.DataFrame:
        """The queries of a split, in corpus order, numbered from 0."""
        return _of_split(self.queries, split)

    def qrels_of(self, split: str) -> pd.DataFrame:
        """The qrels of a split, including relevance 0, numbered from 0."""
        return _of_split(self.qrels, split)

    def answers_of(self, split: str) -> pd.DataFrame:
        """The answers of a split, numbered from 0. A test query may have answers and no qrels."""
        return _of_split(self.answers, split)

    def relevant(self, split: str) -> pd.DataFrame:
        """The qrels of a split with relevance above 0, numbered from 0."""
        qrels = self.qrels_of(split)
        return qrels[qrels["relevance"] > 0].reset_index(drop=True)

    def positives(self, query_ids: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The relevant passages of each query, whatever its split.

        Returns offsets int64 `[queries + 1]` and rows int32. The rows of query i are `rows[offsets[i]:offsets[i + 1]]`,
        ascending; a query that is unknown or has no relevant passage has none.
        """
        import pandas as pd

        wanted = pd.Index(list(query_ids), dtype=object)
        assert wanted.is_unique, "each query id once"
        qrels = self.qrels[self.qrels["relevance"] > 0]
        query = wanted.get_indexer(pd.Index(qrels["query_id"], dtype=object))
        asked = query >= 0
        query, rows = query[asked], self.rows_of(qrels["passage_id"][asked])
        order = np.lexsort((rows, query))
        return offsets_of(query, len(wanted)), rows[order]


def _of_split(table: pd.DataFrame, split: str) -> pd.DataFrame:
    assert split in SPLITS, split
    return table[table["split"] == split].reset_index(drop=True)


def _as_arrow(rows: NDArray[np.integer]) -> pa.Array:
    """Row numbers as an int64 Arrow array. `pa.array` would import pandas to check their type."""
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows, np.int64))])
