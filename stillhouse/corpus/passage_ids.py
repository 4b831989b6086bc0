"""The passage ids of a corpus in row order, read on demand: only the requested ids are in memory."""

import errno
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillhouse.core.errors import InputError

COLUMN = "passage_id"
PIECE = "#[0-9]+$"
"""What a piece's id adds to that of its passage (`sources/pieces.py`); a regular expression."""
LARGEST_BLOCK = 1 << 17
"""Ids that are read at once."""


def own_articles(ids: pa.Array, articles: pa.Array) -> pa.Array:
    """The article id of each passage, or its own id if it has no article."""
    return pc.if_else(pc.equal(articles, ""), ids, articles)


def documents_in(passages: Iterable[Mapping[str, str]], fields: Iterable[Mapping[str, object]] | None) -> list[str]:
    """The document of each passage: its article, or itself if it has none.

    With the `fields` of passages, for a corpus whose qrels name passages that were split, it is the whole passage.
    """
    if fields is None:
        return [each["article_id"] or each[COLUMN] for each in passages]
    return [
        re.sub(PIECE, "", each[COLUMN]) if {"begin", "end"} <= of.keys() else each[COLUMN]
        for each, of in zip(passages, fields)
    ]


class PassageIds:
    """Unique passage ids numbered from 0, from the column `passage_id` of a Parquet file or from a sequence.

    `ids[rows]` returns the ids of an integer array as an object array of the same shape, and `find` the rows of ids.
    Each call reads the whole column, so ask for many ids at once. Raises `InputError` for a damaged file.
    """

    def __init__(self, source: Path | Sequence[str]) -> None:
        self._source = source if isinstance(source, Path) else pa.array(source, pa.string())

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        if not isinstance(self._source, Path):
            return len(self._source)
        try:
            with pq.ParquetFile(self._source) as file:
                return int(file.metadata.num_rows)
        except (pa.ArrowInvalid, OSError) as error:
            raise unreadable(self._source, error, "create it again") from None

    def blocks(self) -> Iterator[pa.Array]:
        """All ids, in blocks."""
        if not isinstance(self._source, Path):
            yield self._source
            return
        try:
            with pq.ParquetFile(self._source) as file:
                for block in file.iter_batches(LARGEST_BLOCK, columns=[COLUMN]):
                    yield block.column(0)
        except (pa.ArrowInvalid, OSError) as error:
            raise unreadable(self._source, error, "create it again") from None

    def __getitem__(self, rows: NDArray[np.integer]) -> NDArray[np.object_]:
        rows = np.asarray(rows)
        wanted, place = np.unique(rows.reshape(-1), return_inverse=True)
        assert not len(wanted) or (wanted[0] >= 0 and wanted[-1] < len(self)), (wanted[0], wanted[-1], len(self))
        found, first = np.empty(len(wanted), dtype=object), 0
        for block in self.blocks() if len(wanted) else ():
            begin, end = np.searchsorted(wanted, (first, first + len(block)))
            found[begin:end] = block.take(pa.array(wanted[begin:end] - first)).to_pylist()
            first += len(block)
        return found[place].reshape(rows.shape)

    def find(self, ids: Iterable[str]) -> NDArray[np.int64]:
        """The row of each id, int64; -1 for a missing id."""
        import pandas as pd  # here, so that a search, which never calls this, starts faster

        place, wanted = pd.factorize(np.array(list(ids), dtype=object))
        values = pa.array(wanted, pa.string())
        rows_W, first = np.full(len(wanted) + 1, -1, dtype=np.int64), 0  # the last place is for ids that are None
        for block in self.blocks() if len(wanted) else ():
            number_B = pc.index_in(block, value_set=values).fill_null(-1).to_numpy(zero_copy_only=False)
            there = np.flatnonzero(number_B >= 0)
            rows_W[number_B[there]] = first + there
            first += len(block)
        return rows_W[place]

    def write(self, path: Path, begin: int = 0, end: int | None = None) -> None:
        """Writes the ids of the rows [begin, end) as the only column of a Parquet file."""
        end = len(self) if end is None else end
        schema, first = pa.schema([(COLUMN, pa.string())]), 0
        with pq.ParquetWriter(path, schema) as file:
            for block in self.blocks():
                chosen = block.slice(max(begin - first, 0), max(end - max(first, begin), 0))
                if len(chosen):
                    file.write_table(pa.table([pa.concat_arrays([chosen])], schema=schema))
                first += len(block)

    @cached_property
    def digest(self) -> bytes:
        """A digest of the ids in their order, wherever they are stored."""
        hashed = hashlib.blake2b(digest_size=16)
        for block in self.blocks():
            lengths = pc.binary_length(block).buffers()[1]  # `to_numpy` would import pandas
            hashed.update(np.frombuffer(lengths, np.int32, len(block)).astype("<i4").tobytes())
        for block in self.blocks():
            hashed.update(_characters(block))
        return hashed.digest()


def _characters(block: pa.Array) -> memoryview:
    """The concatenated UTF-8 of all ids of a block, without a copy."""
    offsets = np.frombuffer(block.buffers()[1], np.int32, len(block) + 1, 4 * block.offset)
    return memoryview(block.buffers()[2] or b"")[offsets[0] : offsets[-1]] if len(block) else memoryview(b"")


def unreadable(path: Path, error: Exception, remedy: str) -> Exception:
    """What to raise for a table that cannot be read: the system's own error, or `InputError` if it is damaged."""
    if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
        return error
    return InputError(f"{path} is damaged ({error}); {remedy}")
