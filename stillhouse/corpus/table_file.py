"""Files larger than memory: a Parquet table that is written as its rows come, and texts that are read by row."""

import mmap
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

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


class TextFile:
    """Texts numbered from 0, or by `numbers`. `texts[rows]` returns the texts of an integer array as an object array.

    `blocks` are the texts in blocks, and `numbers` are ascending, one per text. Two unnamed files in `folder` hold the
    UTF-8 of the texts and where each one begins; they vanish with this object or its process.
    """

    def __init__(
        self, blocks: Iterable[Sequence[str]], folder: Path, numbers: NDArray[np.integer] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as data, tempfile.TemporaryFile(dir=folder) as places:
            end = np.zeros(1, dtype=np.int64)
            places.write(end.tobytes())
            for part in blocks:
                _, starts, content = pa.array(part, pa.large_string()).buffers()
                starts_S = np.frombuffer(starts, dtype=np.int64)[: len(part) + 1]
                if content is not None:
                    data.write(memoryview(content)[: int(starts_S[-1])])
                places.write((starts_S[1:] + end).tobytes())
                end = end + starts_S[-1]
            count = places.tell() // 8 - 1
            self._array = pa.LargeStringArray.from_buffers(count, _mapped(places), _mapped(data))
        self._numbers = numbers
        assert numbers is None or len(numbers) == count, (numbers, count)

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, rows: NDArray[np.integer]) -> NDArray[np.object_]:
        rows = np.asarray(rows)
        place = rows.reshape(-1)
        if self._numbers is not None:
            place = np.searchsorted(self._numbers, place)
            assert (self._numbers[place] == rows.reshape(-1)).all(), "a text that is not in the file"
        found = np.empty(rows.size, dtype=object)
        found[:] = self._array.take(pa.array(place)).to_pylist()
        return found.reshape(rows.shape)


def _mapped(file: IO[bytes]) -> pa.Buffer:
    """The content of a file, memory-mapped; it stays readable when the file is closed."""
    file.flush()
    return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b"")
