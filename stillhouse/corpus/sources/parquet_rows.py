"""Reads the rows of a Parquet file in batches, so that a file may be larger than memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.core.errors import InputError

MOST_ROWS = 1 << 14
AT_ONCE = 1 << 24
"""Bytes of the rows in a batch, which become Python objects next; of rows that differ in size, about as many."""
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
