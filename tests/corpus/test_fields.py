"""The fields of passages: the same table from one process and from parts, and the type of each column."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stillhouse.corpus.cleaning import clean
from stillhouse.corpus.cleaning_parts import Several, clean_parts
from stillhouse.corpus.sources.rows import Part, Passage, Source


def passage(number: int, **fields: object) -> Passage:
    return Passage(f"p{number}", "", f"text {number}", f"p{number}", "", 0, f"f:{number}", fields)  # type: ignore[arg-type]


def written(folder: Path, rows: Sequence[Passage]) -> pa.Table:
    corpus = clean(iter(rows), folder / "passages.parquet")
    corpus.passages.fields.write_typed(folder)
    return pq.read_table(folder / "fields.parquet")


@pytest.mark.parametrize(
    ("values", "type", "read"),
    [
        ([True, False], pa.bool_(), [True, False]),
        ([1, 2**62], pa.int64(), [1, 2**62]),
        ([2**60, 2.5], pa.float64(), [2.0**60, 2.5]),
        (["2026-11-28", 7, True], pa.string(), ["2026-11-28", "7", "true"]),
        ([2**63, 1], pa.string(), [str(2**63), "1"]),
        (["a", ["b", "c"], []], pa.list_(pa.string()), [["a"], ["b", "c"], []]),
        ([{"a": 1}, "\ud800"], pa.string(), ['{"a": 1}', "?"]),
    ],
)
def test_a_column_has_the_narrowest_type_that_holds_its_values(
    tmp_path: Path, values: list[object], type: pa.DataType, read: list[object]
) -> None:
    table = written(tmp_path, [passage(number, value=value) for number, value in enumerate(values)])
    assert table.schema.field("value").type == type
    assert table["value"].to_pylist() == read


def test_fields_belong_to_the_passages_that_were_kept(tmp_path: Path) -> None:
    rows = [passage(number, page=number) if number % 3 else passage(number) for number in range(20_000)]
    rows[5:5] = [passage(4, page=-1)]  # rejected: the id is known
    corpus = clean(iter(rows), tmp_path / "passages.parquet")
    even = np.arange(len(corpus.passages)) % 2 == 0
    kept = corpus.passages.kept(even)
    kept.fields.write_typed(tmp_path)
    pages = pq.read_table(tmp_path / "fields.parquet")["page"].to_pylist()
    assert pages == [number if number % 3 else None for number in range(0, 20_000, 2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fields.parquet", "passages.parquet"]


def test_parts_give_the_same_fields(tmp_path: Path) -> None:
    rows = [passage(number, name=f"n{number}") if number > 700 else passage(number) for number in range(2_000)]
    whole = written(tmp_path, rows)
    halves = [Part(partial(list, rows[:900])), Part(partial(list, rows[900:]))]
    source = Source("jsonl", {}, lambda size, each: halves)
    (tmp_path / "parts").mkdir()
    corpus = clean_parts(source, Several(map, tmp_path / "work"), tmp_path / "parts" / "passages.parquet")
    corpus.passages.fields.write_typed(tmp_path / "parts")
    assert pq.read_table(tmp_path / "parts" / "fields.parquet").equals(whole)


def test_a_corpus_without_fields_has_no_such_table(tmp_path: Path) -> None:
    corpus = clean(iter([passage(1)]), tmp_path / "passages.parquet")
    assert corpus.passages.fields.write_typed(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["passages.parquet"]
