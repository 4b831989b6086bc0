"""The passages of a release, ready to be shown and filtered: an unnamed Arrow file that is memory-mapped.

A corpus's Parquet file would have to be decompressed for every answer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillhouse.errors import InputError

COLUMNS = ("passage_id", "article_id", "title", "text")
FILTERS_KEPT = 32
"""How many filters have their rows cached, at 4 bytes per matching passage."""


class Passages:
    """The passages of a corpus in row order. Raises `InputError` for a damaged Parquet file."""

    def __init__(self, corpus: Path) -> None:
        path = corpus / "passages.parquet"
        with tempfile.NamedTemporaryFile(prefix="stillhouse-") as file:
            try:
                with pq.ParquetFile(path) as source:
                    schema = pa.schema([source.schema_arrow.field(name) for name in COLUMNS])
                    with pa.ipc.new_file(file.name, schema) as written:
                        for batch in source.iter_batches(columns=list(COLUMNS)):
                            written.write_batch(batch)
            except (pa.ArrowInvalid, KeyError) as error:
                raise InputError(f"{path} is damaged ({error}); run `stillhouse ingest` again") from None
            # The mapping outlives the file's name, so a kill leaves nothing behind.
            self._table: pa.Table = pa.ipc.open_file(pa.memory_map(file.name)).read_all()
        # The decompressed data are not needed again, but Arrow would keep their memory.
        pa.default_memory_pool().release_unused()
        self.rows_within = lru_cache(FILTERS_KEPT)(self._rows_within)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def at(self, rows: Sequence[int], *columns: str) -> list[dict[str, Any]]:
        """Some columns of the passages `rows`, in order."""
        # Value by value: `take` would first join all chunks of the column, even for a few rows.
        taken = [(name, self._table[name]) for name in columns]
        return [{name: values[row].as_py() for name, values in taken} for row in rows]

    def rows_of(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """The rows, ascending, of the ids that are passages."""
        found = pc.is_in(
            self._table["passage_id"], value_set=pa.array(ids, self._table.schema.field("passage_id").type)
        )
        return np.flatnonzero(found.to_numpy(zero_copy_only=False)).astype(np.int32)

    def _rows_within(self, id_prefix: str, article: str) -> NDArray[np.int32]:
        """The rows, ascending, whose id begins with `id_prefix` and whose article is `article`; "" lets all through."""
        keep = pc.starts_with(self._table["passage_id"], id_prefix)
        if article:
            keep = pc.and_(keep, pc.equal(self._table["article_id"], article))
        return np.flatnonzero(keep.to_numpy(zero_copy_only=False)).astype(np.int32)
