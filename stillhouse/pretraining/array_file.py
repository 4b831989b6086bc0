"""A growing `.npy` file: writes arrays that do not fit into memory, piece by piece."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import DTypeLike, NDArray


class ArrayFile:
    """Writes a one-dimensional array piece by piece. After the `with` block the file equals `np.save` output."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.length = 0
        self._file = path.open("wb")
        self._write_header()

    def append(self, part_T: NDArray[np.generic]) -> None:
        assert part_T.dtype == self.dtype and part_T.ndim == 1, (part_T.dtype, part_T.shape)
        self._file.write(part_T.tobytes())
        self.length += len(part_T)

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            self._file.seek(0)
            # NumPy pads the header, so the length can grow without moving the data.
            self._write_header()

    def _write_header(self) -> None:
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.length,),
        }
        np.lib.format.write_array_header_1_0(self._file, header)
