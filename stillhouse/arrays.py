"""Arrays on the disk, of which none is cut short by a disk that fills up: whoever writes one hears of that.

NumPy writes to a file of Python's by way of C's own, and does not hear what these say when they are closed: up to 4 KiB
at an array's end would be missing, without an error. Here Python writes.
"""

from __future__ import annotations

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
