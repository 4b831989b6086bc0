"""A file written piece by piece, compared with `np.save` of the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stillhouse.pretraining.array_file import ArrayFile


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.float32])
@pytest.mark.parametrize("lengths", [[], [0], [3], [5, 0, 7], [1] * 11, [100_000, 23]])
def test_bytes_are_those_of_np_save(tmp_path: Path, dtype: type, lengths: list[int]) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 2, size=length).astype(dtype) for length in lengths]
    with ArrayFile(tmp_path / "grown.npy", dtype) as file:
        for part in parts:
            file.append(part)
    np.save(tmp_path / "whole.npy", np.concatenate([np.zeros(0, dtype), *parts]))
    assert (tmp_path / "grown.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
