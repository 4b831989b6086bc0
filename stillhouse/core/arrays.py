"""Arrays on disk. Writing one raises an error if the disk is full, and never truncates it silently.

NumPy writes through a C file and ignores errors on closing it, so up to 4 KiB at the end of an array could go missing
without an error. Here Python does the writing. `chunks` cuts the rows of an array, `evenly_spaced` samples them.
"""

import io
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class _Unknown:
    """A file that NumPy does not recognise as one, so that it calls `write`."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write = file.write


def write_array(file: IO[bytes], array: NDArray[Any]) -> None:
    """Writes the bytes that `np.save` would write."""
    np.lib.format.write_array(_Unknown(file), array, allow_pickle=False)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Writes a `.npy` file, with the bytes that `np.save` would write."""
    with path.open("wb") as file:
        write_array(file, array)


def map_array(path: Path, dtype: DTypeLike, row: tuple[int, ...] = ()) -> NDArray[Any]:
    """Memory-maps an array of rows of shape `row` that `write_array` wrote to a file of its own.

    The header is compared rather than parsed: NumPy's parser raises various errors for a changed bit, and none if only
    white space changed. Raises `ValueError` for any other file and `OSError` if there is no file.
    """
    dtype = np.dtype(dtype)
    with path.open("rb") as file:
        size, row_size = os.fstat(file.fileno()).st_size, dtype.itemsize * int(np.prod(row))
        length = max(0, size - len(_header(dtype, (0, *row)))) // row_size
        header = _header(dtype, (length, *row))
        if file.read(len(header)) != header or size != len(header) + length * row_size:
            raise ValueError(f"{path} is not an array of {dtype} with rows of shape {row}, or is damaged")
        return np.memmap(file, dtype, mode="r", offset=len(header), shape=(length, *row))


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of an array's file."""
    file = io.BytesIO()
    write_header(file, dtype, shape)
    return file.getvalue()


def write_header(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Writes the header of an array whose numbers follow. NumPy pads it, so a new length overwrites it in place."""
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)


def write_numbers(file: IO[bytes], array: NDArray[Any]) -> None:
    """Writes bare numbers, as `array.tofile` would."""
    file.write(np.ascontiguousarray(array).data)


def new_array(path: Path, dtype: DTypeLike, length: int) -> NDArray[Any]:
    """Creates a `.npy` file of zeros and maps it for writing. An empty array, which cannot be mapped, is in memory.

    The file's space is allocated at once: writing to a mapped page that finds the disk full would kill the process.
    """
    if not length:
        save_array(path, np.zeros(0, dtype))
        return np.zeros(0, dtype)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(length,))
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def evenly_spaced(count: int, at_most: int) -> NDArray[np.int64]:
    """At most so many of the numbers from 0 to `count` - 1, ascending and evenly spaced."""
    return np.linspace(0, count - 1, min(count, at_most)).astype(np.int64)


def chunks(count: int, size: int) -> list[np.ndarray]:
    """The numbers 0..count-1 in order, `size` at a time."""
    return [np.arange(start, min(start + size, count)) for start in range(0, count, size)]
