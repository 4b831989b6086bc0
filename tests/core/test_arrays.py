"""Arrays are written exactly as NumPy writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stillhouse.core.arrays import map_array, new_array, save_array, write_numbers

ROWS = np.dtype([("gram", np.int32, (3,)), ("count", np.int64)])
ARRAYS = {
    "integers": np.arange(5000, dtype=np.int64),
    "none": np.zeros(0, np.float32),
    "one": np.array(7, np.int32),
    "a matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "a matrix by columns": np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
    "every other": np.arange(5000, dtype=np.int32)[::2],
    "truths": np.arange(7) % 2 == 0,
    "texts": np.array([b"0123456789abcdef", b"x"], "S16"),
    "rows": np.zeros(4, ROWS),
    "no rows": np.zeros(0, ROWS),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_bytes_are_those_of_numpy(name: str, tmp_path: Path) -> None:
    array: NDArray[Any] = ARRAYS[name]
    save_array(tmp_path / "ours", array)
    with (tmp_path / "theirs").open("wb") as file:
        np.save(file, array)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    with (tmp_path / "numbers").open("wb") as file:
        write_numbers(file, array)
    assert (tmp_path / "numbers").read_bytes() == array.tobytes()


@pytest.mark.parametrize("length", [0, 1, 5000])
def test_an_array_that_numpy_wrote_is_mapped(length: int, tmp_path: Path) -> None:
    path = tmp_path / "theirs.npy"
    for rows in (np.arange(length * 6, dtype=np.float32).reshape(length, 2, 3), np.array([b"ab"] * length, "S4")):
        np.save(path, rows)
        mapped = map_array(path, rows.dtype, rows.shape[1:])
        assert mapped.dtype == rows.dtype and np.array_equal(mapped, rows)
        for dtype, row in ((np.int32, rows.shape[1:]), (rows.dtype, (*rows.shape[1:], 2))):
            with pytest.raises(ValueError, match=r"theirs\.npy is not an array of"):
                map_array(path, dtype, row)
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(ValueError, match="damaged"):
            map_array(path, rows.dtype, rows.shape[1:])


@pytest.mark.parametrize("length", [0, 1, 5000])
def test_a_new_array_is_written_to_its_file(length: int, tmp_path: Path) -> None:
    array = new_array(tmp_path / "new.npy", np.float32, length)
    assert not array.any() and len(array) == length
    array[:] = np.arange(length)
    np.testing.assert_array_equal(np.load(tmp_path / "new.npy"), np.arange(length, dtype=np.float32))
    np.save(tmp_path / "theirs.npy", np.arange(length, dtype=np.float32))
    assert (tmp_path / "new.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()
