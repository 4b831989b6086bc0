"""Reads the rows of a Parquet file in batches, so that a file may be larger than memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.rows import CONTENT_LENGTH

MOST_ROWS = 1 << 14
AT_ONCE = 1 << 24
"""Bytes of the rows in a batch, which become Python objects next; a single row may be larger."""
_BUFFER = 1 << 20
"""Bytes of a column that are read at once; `pyarrow` would read the column's whole row group."""


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
    """The rows of some columns in order, in batches of at most `MOST_ROWS` and `AT_ONCE`, or of one row. With `groups`,
    only the rows of these row groups.

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
            yield from _pieces(_plain(batch))


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with its dictionaries decoded, so that its size counts every value in full."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if len(batch) <= 1 or batch.nbytes <= AT_ONCE:
        yield batch
        return
    half = len(batch) // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def beginning(value: pa.Scalar) -> object:
    """A value; for a text of any length, only its beginning."""
    if not isinstance(value, pa.BinaryScalar) or not value.is_valid:
        return None if value.type.num_fields else value.as_py()
    content = value.as_buffer()
    begun = content.slice(0, min(len(content), 4 * CONTENT_LENGTH)).to_pybytes()
    return begun.decode("utf-8", "replace")[:CONTENT_LENGTH]
