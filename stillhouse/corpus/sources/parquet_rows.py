"""Reads the rows of a Parquet file in batches that fit into memory, whatever their values are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.corpus.sources.parquet_pages import read_chunks, read_pages, row_bytes
from stillhouse.corpus.sources.rows import CONTENT_LENGTH
from stillhouse.errors import InputError

MOST_ROWS = 1 << 14
AT_ONCE = 1 << 26
"""Bytes of the rows that are decoded together, besides their pages."""
HANDED_OVER = 1 << 24
"""Bytes of the rows in a batch, which become Python objects next; a single row may be larger."""
LARGEST_PAGES = 1 << 30
"""The most bytes of the largest pages of all columns together, since a page is unpacked as a whole."""
_BUFFER = 1 << 20
"""Bytes of a column that are read at once; `pyarrow` would read the column's whole row group."""


def open_parquet(path: Path) -> pq.ParquetFile:
    """Opens a Parquet file. For any other file, it raises what `pyarrow` raises."""
    return pq.ParquetFile(path, buffer_size=_BUFFER)


def read_batches(
    opened: pq.ParquetFile, path: Path, columns: Collection[str], groups: range | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of some columns in order, in batches of at most `MOST_ROWS` and `HANDED_OVER`, or of one row. With
    `groups`, only the rows of these row groups.

    Raises `InputError` for a column of lists and for pages beyond `LARGEST_PAGES`. For damage, it raises `ValueError`
    or what `pyarrow` raises.
    """
    return _joined(_small_batches(opened, path, columns, groups))


def _small_batches(
    opened: pq.ParquetFile, path: Path, columns: Collection[str], groups: range | None
) -> Iterator[pa.RecordBatch]:
    leaves = _leaves(opened, path, columns)
    with path.open("rb", buffering=0) as file:
        for group, chunks in enumerate(read_chunks(file)):
            if groups is not None and group not in groups:
                continue
            pages = [list(read_pages(file, chunks[place])) for place in leaves]
            largest = sum(max((page.size for page in of_column), default=0) for of_column in pages)
            if largest > LARGEST_PAGES:
                raise InputError(
                    f"{path}: {largest:,} bytes of row group {group + 1:,} would have to be in memory at once, more "
                    f"than {LARGEST_PAGES >> 20:,} MiB; write the file again with fewer rows per row group"
                )
            of_row = sum(map(row_bytes, pages, leaves.values()))
            rows = max(1, min(MOST_ROWS, AT_ONCE // max(1, of_row)))
            yield from opened.iter_batches(rows, row_groups=[group], columns=list(columns))


def _leaves(opened: pq.ParquetFile, path: Path, columns: Collection[str]) -> dict[int, pq.ColumnSchema]:
    """The file's physical columns of the given ones, by place: a struct has several."""
    found = {}
    for place in range(len(opened.schema.names)):
        leaf = opened.schema.column(place)
        if not any(leaf.path == column or leaf.path.startswith(f"{column}.") for column in columns):
            continue
        if leaf.max_repetition_level:
            raise InputError(
                f"{path}: its column {leaf.path.partition('.')[0]} holds lists; write one value per row, or name "
                "another column in `columns`"
            )
        found[place] = leaf
    return found


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Regroups the rows into large batches, since each batch costs time, but none beyond `HANDED_OVER`."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            for piece in _pieces(_plain(batch)):
                if waiting and (rows + len(piece) > MOST_ROWS or size + piece.nbytes > HANDED_OVER):
                    yield _one(waiting)
                    waiting, rows, size = [], 0, 0
                waiting.append(piece)
                rows, size = rows + len(piece), size + piece.nbytes
    except (pa.ArrowException, OSError, ValueError, LookupError):
        # The error for the damage names the last row before it.
        if waiting:
            yield _one(waiting)
        raise
    if waiting:
        yield _one(waiting)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with its dictionaries decoded, so that its size counts every value in full."""
    if not any(pa.types.is_dictionary(column.type) for column in batch.columns):
        return batch
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if len(batch) <= 1 or batch.nbytes <= HANDED_OVER:
        yield batch
        return
    half = len(batch) // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def beginning(value: pa.Scalar) -> object:
    """A value; for a text of any length, only its beginning."""
    if not isinstance(value, pa.BinaryScalar) or not value.is_valid:
        return None if value.type.num_fields else value.as_py()
    content = value.as_buffer()
    begun = content.slice(0, min(len(content), 4 * CONTENT_LENGTH)).to_pybytes()
    return begun.decode("utf-8", "replace")[:CONTENT_LENGTH]
