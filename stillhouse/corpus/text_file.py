"""Texts by row from a memory-mapped file: only requested texts take memory."""

import mmap
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


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
