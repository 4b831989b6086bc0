"""A growing `.npy` file: writes arrays that do not fit into memory, piece by piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stillhouse.core.arrays import write_header


class ArrayFile:
    """Writes a one-dimensional array piece by piece. After the `with` block the file equals `np.save` output."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.length = 0
        self._file = path.open("wb")
        write_header(self._file, self.dtype, (0,))

    def append(self, part_T: NDArray[np.generic]) -> None:
        assert part_T.dtype == self.dtype and part_T.ndim == 1, (part_T.dtype, part_T.shape)
        self._file.write(part_T.tobytes())
        self.length += len(part_T)

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *error: object) -> None:
        with self._file:
            self._file.seek(0)
            write_header(self._file, self.dtype, (self.length,))
