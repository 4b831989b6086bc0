"""Writes a Parquet table of any size as its rows come, with the same bytes as if written at once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP = 1 << 17
"""Rows per row group. At most this many are in memory, besides the rows being added."""


class TableFile:
    """A table in a file or, without `path`, in memory. `write` adds rows until `close`; then it can be read.

    `unique` columns, which have almost no repeated value, are written without dictionary encoding.
    """

    def __init__(self, path: Path | None, schema: pa.Schema, unique: Collection[str] = ()) -> None:
        self.path, self._schema = path, schema
        self._memory: pa.Buffer | None = None
        self._sink = pa.BufferOutputStream() if path is None else pa.OSFile(str(path), "wb")
        repeated = [name for name in schema.names if name not in unique]
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd", use_dictionary=repeated)
        self._waiting: list[pa.Table] = []
        self._groups = 0

    def write(self, columns: Mapping[str, Sequence[object]]) -> None:
        """Adds rows, given as one sequence per column."""
        assert set(columns) == set(self._schema.names), f"columns {sorted(columns)}, not {self._schema.names}"
        self.write_rows(pa.Table.from_pydict({name: columns[name] for name in self._schema.names}, schema=self._schema))

    def write_rows(self, rows: pa.Table) -> None:
        """Adds the rows of a table with the same schema."""
        self._waiting.append(rows)
        while sum(map(len, self._waiting)) >= ROW_GROUP:
            waiting = pa.concat_tables(self._waiting)
            self._write_group(waiting.slice(0, ROW_GROUP))
            self._waiting = [waiting.slice(ROW_GROUP)]

    def close(self) -> None:
        """Writes the remaining rows and closes the table. A table without rows has one empty row group."""
        rest = pa.concat_tables(self._waiting) if self._waiting else self._schema.empty_table()
        self._waiting = []
        if len(rest) or not self._groups:
            self._write_group(rest)
        self._writer.close()
        if self.path is None:
            self._memory = self._sink.getvalue()
        self._sink.close()

    def blocks(self, columns: Sequence[str], rows: int = 8192) -> Iterator[pa.RecordBatch]:
        """The rows of a closed table, in blocks."""
        with pq.ParquetFile(self.path if self._memory is None else pa.BufferReader(self._memory)) as file:
            yield from file.iter_batches(rows, columns=list(columns))

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of a closed table."""
        blocks = [block.column(0) for block in self.blocks([name], ROW_GROUP)]
        return pa.chunked_array(blocks, type=self._schema.field(name).type)

    def move(self, path: Path) -> None:
        """Renames the file of a closed table, replacing a file at `path`."""
        assert self.path is not None, "a table in a file"
        self.path = self.path.replace(path)

    def _write_group(self, rows: pa.Table) -> None:
        # Data pages end where chunks do, so a group must be a single chunk to give the same bytes every time.
        self._writer.write_table(rows.combine_chunks(), row_group_size=ROW_GROUP)
        self._groups += 1
