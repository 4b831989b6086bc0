"""Files written by other libraries on a disk with too little room: the file is complete, or there is an error.

C writes the last bytes of a file when it is closed, and libraries do not check the result.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray
from small_disk import Disk

from stillhouse.core.arrays import new_array, save_array, write_numbers
from stillhouse.core.errors import is_full_disk
from stillhouse.pretraining.array_file import ArrayFile
from stillhouse.search.embeddings import DIGEST, write_segment
from stillhouse.search.index_kinds import write_built

SIZES = (100, 900, 1023, 1100, 3000)
"""Counts of 8-byte numbers: with its header, one file ends in the first page and the others in later pages."""


def numbers(path: Path, array: NDArray[Any]) -> None:
    with path.open("wb") as file:
        write_numbers(file, array)


def piece_by_piece(path: Path, array: NDArray[Any]) -> None:
    with ArrayFile(path, array.dtype) as file:
        for part in np.array_split(array, 7):
            file.append(part)


def mapped(path: Path, array: NDArray[Any]) -> None:
    new = new_array(path, array.dtype, len(array))
    about = path.stat()
    assert about.st_blocks * 512 >= about.st_size, "without its place on the disk, to write would kill this process"
    new[:] = array


def segment(path: Path, array: NDArray[Any]) -> None:
    write_segment(path, np.full(len(array), b"0123456789abcdef", DIGEST), array[:, None].astype(np.float32))


def index(path: Path, array: NDArray[Any]) -> None:
    vectors = np.tile(array[:, None].astype(np.float32), 8)
    built = faiss.IndexScalarQuantizer(8, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    built.train(vectors)
    built.add(vectors)
    write_built(path, built)


WRITERS: dict[str, Callable[[Path, NDArray[Any]], None]] = {
    "an array": save_array,
    "bare numbers": numbers,
    "an array piece by piece": piece_by_piece,
    "a mapped array": mapped,
    "a segment of vectors": segment,
    "a built index": index,
}


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_is_whole_or_its_writer_is_reported(writer: str, disk: Disk, tmp_path: Path) -> None:
    ends = set()
    for size in SIZES:
        array = np.arange(size, dtype=np.int64)
        (whole := tmp_path / str(size)).mkdir()
        WRITERS[writer](whole / "file", array)
        for pages in range(1, 10):
            disk.resize(pages)
            try:
                WRITERS[writer](disk.folder / "file", array)
            except OSError as error:
                assert is_full_disk(error), error
                ends.add("logged")
            else:
                assert content(disk.folder) == content(whole)
                ends.add("whole")
            for path in disk.folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert ends == {"logged", "whole"}
