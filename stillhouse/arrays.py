"""Arrays on the disk, of which none is cut short by a disk that fills up: whoever writes one hears of that.

NumPy writes to a file of Python's by way of C's own, and does not hear what these say when they are closed: up to 4 KiB
at an array's end would be missing, without an error. Here Python writes.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class _Unknown:
    """A file that NumPy does not know for one, and so calls."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write = file.write


def write_array(file: IO[bytes], array: NDArray[Any]) -> None:
    """Writes what `np.save` would."""
    np.lib.format.write_array(_Unknown(file), array, allow_pickle=False)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Makes a `.npy` file of the bytes that `np.save` would give it."""
    with path.open("wb") as file:
        write_array(file, array)


def map_array(path: Path, dtype: DTypeLike, row: tuple[int, ...] = ()) -> NDArray[Any]:
    """The rows of an array that `write_array` wrote to a file of its own, memory-mapped: each of shape `row`.

    Its header is compared and not parsed: NumPy has Python parse it, which raises one error or another where a bit of
    it has changed, and where only its spaces have, none. Raises `ValueError` for any other file, `OSError` for none.
    """
    dtype = np.dtype(dtype)
    with path.open("rb") as file:
        size, row_size = os.fstat(file.fileno()).st_size, dtype.itemsize * int(np.prod(row))
        length = max(0, size - len(_header(dtype, (0, *row)))) // row_size
        header = _header(dtype, (length, *row))
        if file.read(len(header)) != header or size != len(header) + length * row_size:
            raise ValueError(f"{path} is no array of {dtype} in rows of {row}, or is damaged")
        return np.memmap(file, dtype, mode="r", offset=len(header), shape=(length, *row))


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What stands before an array's numbers in its file."""
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, about)
    return file.getvalue()


def write_numbers(file: IO[bytes], array: NDArray[Any]) -> None:
    """Writes bare numbers, as `array.tofile` would."""
    file.write(np.ascontiguousarray(array).data)


def new_array(path: Path, dtype: DTypeLike, length: int) -> NDArray[Any]:
    """An array of zeros in a `.npy` file, memory-mapped, to be written to; an empty one, which cannot be, in memory.

    It has its whole place on the disk at once: a page that finds none when it is written to would kill the process.
    """
    if not length:
        save_array(path, np.zeros(0, dtype))
        return np.zeros(0, dtype)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(length,))
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array
