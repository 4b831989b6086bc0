"""The passages of a release, ready to be shown and filtered.

A corpus's Parquet files would have to be decompressed for every answer. So ids, titles and fields are in unnamed Arrow
files that are memory-mapped, and texts in an unnamed file that is read at their offsets. If it were mapped too, each
text would bring 64 KB of its neighbours into the process, and the process would grow to the size of the file.

Shape suffixes: N passages, B passages of a batch.
"""

import json
import os
import tempfile
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.corpus.fields import present, rows_where
from stillhouse.corpus.passage_ids import documents_in
from stillhouse.corpus.sources.rows import Value
from stillhouse.corpus.store import Corpus

MAPPED = ("passage_id", "article_id", "title", "section")
TEXT = "text"
FILTERS_KEPT = 32
"""How many filters have their rows cached, at 4 bytes per matching passage."""


class Passages:
    """The passages of a corpus in row order. Raises `InputError` for a damaged Parquet file."""

    def __init__(self, corpus: Corpus) -> None:
        path = corpus.folder / "passages.parquet"
        lengths = [np.zeros(1, dtype=np.int64)]
        with tempfile.NamedTemporaryFile(prefix="stillhouse-") as file, tempfile.TemporaryFile() as texts:
            try:
                with pq.ParquetFile(path) as source:
                    schema = pa.schema([source.schema_arrow.field(name) for name in MAPPED])
                    with pa.ipc.new_file(file.name, schema) as written:
                        for batch in source.iter_batches(columns=[*MAPPED, TEXT]):
                            written.write_batch(batch.select(MAPPED))
                            text_bytes, lengths_B = _bytes_of(batch[TEXT])
                            texts.write(text_bytes)
                            lengths.append(lengths_B)
            except (pa.ArrowInvalid, KeyError) as error:
                raise InputError(f"{path} is damaged ({error}); run `stillhouse ingest` again") from None
            # Both outlive the files' names, so a kill leaves nothing behind.
            self._table: pa.Table = pa.ipc.open_file(pa.memory_map(file.name)).read_all()
            texts.flush()
            self._texts = os.dup(texts.fileno())
            weakref.finalize(self, os.close, self._texts)
        self.field_types, self.judges_whole_passages = corpus.field_types, corpus.judges_whole_passages
        with tempfile.NamedTemporaryFile(prefix="stillhouse-") as file:
            with pa.ipc.new_file(file.name, self.field_types) as written:
                for batch in corpus.field_batches():
                    written.write_batch(batch)
            self._fields: pa.Table = pa.ipc.open_file(pa.memory_map(file.name)).read_all()
        self._offsets_N = np.cumsum(np.concatenate(lengths))
        # The decompressed data are not needed again, but Arrow would keep their memory.
        pa.default_memory_pool().release_unused()
        self.rows_within = lru_cache(FILTERS_KEPT)(self._rows_within)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def at(self, rows: Sequence[int], *columns: str) -> list[dict[str, Any]]:
        """Some columns of the passages `rows`, in order."""
        # Value by value: `take` would first join all chunks of the column, even for a few rows.
        taken = [(name, self._table[name]) for name in columns if name != TEXT]
        found = [{name: values[row].as_py() for name, values in taken} for row in rows]
        if TEXT in columns:
            for each, row in zip(found, rows):
                begin, end = self._offsets_N[row], self._offsets_N[row + 1]
                each[TEXT] = os.pread(self._texts, end - begin, begin).decode()
        return found

    def documents_of(self, rows: Sequence[int]) -> list[str]:
        """The document of each passage (`documents_in`)."""
        fields = self.fields_at(rows) if self.judges_whole_passages else None
        return documents_in(self.at(rows, "article_id", "passage_id"), fields)

    def fields_at(self, rows: Sequence[int]) -> list[dict[str, Value]]:
        """The fields of the passages `rows`, without null."""
        return present([{name: self._fields[name][row].as_py() for name in self.field_types.names} for row in rows])

    def _rows_within(self, where: str) -> NDArray[np.int32]:
        """The rows, ascending, whose fields meet the conditions `where`, as JSON."""
        return rows_where(self._fields, json.loads(where))


def _bytes_of(texts_B: pa.Array) -> tuple[memoryview, NDArray[np.int64]]:
    """The UTF-8 bytes of texts, joined, and the length of each."""
    texts_B = texts_B.cast(pa.large_binary())
    _, offsets, data = texts_B.buffers()
    offsets_B = np.frombuffer(offsets, dtype=np.int64)[texts_B.offset : texts_B.offset + len(texts_B) + 1]
    return memoryview(data)[offsets_B[0] : offsets_B[-1]] if data else memoryview(b""), np.diff(offsets_B)
