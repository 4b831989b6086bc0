"""Passage ids that stay in their file, compared with a list."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.core.errors import InputError
from stillhouse.corpus.passage_ids import COLUMN, PassageIds

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=4)


def in_a_file(folder: Path, ids: list[str], group: int) -> PassageIds:
    path = folder / "ids.parquet"
    pq.write_table(pa.table({"other": ids, COLUMN: ids}), path, row_group_size=group)
    return PassageIds(path)


@given(st.lists(names, unique=True, max_size=12), st.lists(names, max_size=8), st.integers(1, 5), st.data())
def test_ids_in_a_file_behave_like_ids_in_a_list(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str], others: list[str], group: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    for found in (in_a_file(folder, ids, group), PassageIds(ids)):
        assert len(found) == len(ids)
        asked = others + (data.draw(st.lists(st.sampled_from(ids), max_size=8)) if ids else [])
        assert found.find(asked).tolist() == [ids.index(id) if id in ids else -1 for id in asked]
        rows = data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=8)) if ids else []
        assert found[np.array(rows, dtype=np.int64)].tolist() == [ids[row] for row in rows]
        begin, end = sorted(data.draw(st.tuples(st.integers(0, len(ids)), st.integers(0, len(ids)))))
        found.write(folder / "written.parquet", begin, end)
        assert pq.read_table(folder / "written.parquet")[COLUMN].to_pylist() == ids[begin:end]


@given(st.lists(names, unique=True, max_size=6), st.lists(names, unique=True, max_size=6))
def test_the_digest_is_that_of_the_ids_alone(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str], others: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    assert in_a_file(folder, ids, 2).digest == PassageIds(ids).digest
    assert (PassageIds(ids).digest == PassageIds(others).digest) == (ids == others)


def test_a_search_among_many_ids_uses_little_memory(tmp_path: Path) -> None:
    ids = in_a_file(tmp_path, [f"passage-{i}" for i in range(600_000)], 1 << 17)
    tracemalloc.start()
    assert ids.find(["passage-599999", "passage-7"]).tolist() == [599_999, 7]
    assert ids[np.array([3])].tolist() == ["passage-3"]
    # A list of them would take 40 MB.
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "ids.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"ids\.parquet is damaged"):
        len(PassageIds(tmp_path / "ids.parquet"))
