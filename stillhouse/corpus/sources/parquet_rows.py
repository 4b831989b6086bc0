"""Reads Parquet tables in batches, so that a file may be larger than memory, and passages column by column, which is
several times as fast as row by row.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.rows import Passage
from stillhouse.corpus.sources.table_columns import FIELD

MOST_ROWS = 1 << 14
AT_ONCE = 1 << 24
"""Bytes of the rows in a batch, which become Python objects next; of rows that differ in size, about as many."""
_BUFFER = 1 << 20
"""Bytes of a column that are read at once; `pyarrow` would read the column's whole row group."""
REQUIRED = ("id", "text")
TEXTS = (*REQUIRED, "title", "article_id", "section")
MOST = 10**9
"""Positions are below this."""


def open_parquet(path: Path) -> pq.ParquetFile:
    """Opens a Parquet file. For any other file, it raises what `pyarrow` raises."""
    return pq.ParquetFile(path, buffer_size=_BUFFER)


def read_batches(
    opened: pq.ParquetFile,
    path: Path,
    columns: Collection[str],
    groups: range | None = None,
    lists: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of some columns in order, in batches. With `groups`, only the rows of these row groups.

    Raises `InputError` for a column of lists that is not among `lists`. For damage, it raises what `pyarrow` raises.
    """
    for column in columns:
        if column in lists:
            continue
        if pa.types.is_nested(kind := opened.schema_arrow.field(column).type) and not pa.types.is_struct(kind):
            raise InputError(
                f"{path}: its column {column} holds lists; write one value per row, or name another column in `columns`"
            )
    for group in groups or range(opened.num_row_groups):
        of_group = opened.metadata.row_group(group)
        rows = AT_ONCE * of_group.num_rows // max(1, of_group.total_byte_size)
        for batch in opened.iter_batches(max(1, min(MOST_ROWS, rows)), row_groups=[group], columns=list(columns)):
            yield _plain(batch)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with its dictionaries decoded."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def plain_passages(columns: Mapping[str, pa.Array], wheres: Sequence[str]) -> Iterator[Passage] | None:
    """The passages of some rows, or None if a value is missing or is not text and so needs a check of its own.

    `columns` are the existing ones among `id`, `text`, `title`, `article_id`, `section` and `position`, and fields.
    """
    texts = {name: columns[name] for name in TEXTS if name in columns}
    whole = all(name in texts and not texts[name].null_count for name in REQUIRED)
    if not whole or not all(column.type in (pa.string(), pa.large_string()) for column in texts.values()):
        return None
    positions: Iterable[int] = repeat(0)
    if "position" in columns:
        column = columns["position"]
        if not pa.types.is_integer(column.type) or column.null_count:
            return None
        least_most = pc.min_max(column).as_py()
        if len(column) and not 0 <= least_most["min"] <= least_most["max"] < MOST:
            return None
        positions = column.to_pylist()
    values = {name: pc.fill_null(column, "").to_pylist() for name, column in texts.items()}
    ids, none = values["id"], repeat("")
    # In a table without articles, each passage is its own article.
    owners = values.get("article_id", ids)
    titles, sections = values.get("title", none), values.get("section", none)
    rows = ids, titles, values["text"], owners, sections, positions, wheres
    fields = {name.removeprefix(FIELD): columns[name].to_pylist() for name in columns if name.startswith(FIELD)}
    if not fields:
        return map(Passage, *rows)
    return map(Passage, *rows, (dict(zip(fields, given)) for given in zip(*fields.values())))
