"""All rows of a Parquet file are read, in batches of bounded memory; damage is an error of one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources import parquet_rows
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.parquet_rows import open_parquet, read_batches
from stillhouse.corpus.sources.rows import Rejected

ROWS, LONG = 600, 1_000_000
MOST = 350_000_000
"""Bytes of memory that reading 600,000,000 bytes of texts may take: a few times what is read at once."""

PEAK = """
import sys, tracemalloc
import pyarrow as pa
from stillhouse.corpus.sources.detect import open_source
tracemalloc.start()
count = sum(len(row.text) == {long} for row in open_source(sys.argv[1]).rows())
assert count == {rows}, count
print(tracemalloc.get_traced_memory()[1] + pa.default_memory_pool().max_memory())
"""


def test_a_file_is_read_in_batches_of_bounded_memory(tmp_path: Path) -> None:
    """All texts are different and in one row group: 600 rows of 1,000,000 characters."""
    path = tmp_path / "passages.parquet"
    ids = pa.array([f"p{number}" for number in range(ROWS)])
    texts = pa.array([f"{number:06d}" + "x" * (LONG - 6) for number in range(ROWS)])
    pq.write_table(pa.table({"id": ids, "text": texts}), path, use_dictionary=False, write_batch_size=4)
    command = [sys.executable, "-c", PEAK.format(long=LONG, rows=ROWS), str(path)]
    peak = int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert LONG < peak < MOST, f"{peak:,} bytes"


DIFFERENT = 60


def mixed(count: int, seed: int) -> pa.Table:
    """Return a table with short, long and repeated texts, nulls, and columns of other types."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 40, DIFFERENT) * np.where(np.arange(DIFFERENT) % 5, 1, 300)
    texts = [f"{chr(233 + number % 7)}{number}" * length for number, length in enumerate(lengths.tolist())]
    texts = [texts[place] for place in rng.integers(0, DIFFERENT, count)]
    sections = [None if number % 3 else f"s{number % 5}" for number in range(count)]
    columns = {
        "id": [f"p{number}" for number in range(count)],
        "text": texts,
        "section": pa.array(sections).dictionary_encode(),
        "position": pa.array(range(count), pa.int64()),
        "not read": ["y" * 100] * count,
    }
    return pa.table(columns)


WRITTEN: dict[str, dict[str, Any]] = {
    "as by default": {},
    "small pages": {"data_page_size": 500, "write_batch_size": 8},
    "small row groups": {"row_group_size": 70},
    "pages of version 2": {"data_page_version": "2.0", "data_page_size": 500, "write_batch_size": 8},
    "delta": {"use_dictionary": ["section"], "column_encoding": {"id": "DELTA_BYTE_ARRAY", "text": "DELTA_BYTE_ARRAY"}},
}


@pytest.mark.parametrize("at_once", [500, parquet_rows.AT_ONCE])
@pytest.mark.parametrize("written", WRITTEN)
def test_every_row_is_read_in_small_batches(
    written: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path = mixed(4000, len(written)), tmp_path / "passages.parquet"
    pq.write_table(table, path, **WRITTEN[written])
    monkeypatch.setattr(parquet_rows, "AT_ONCE", at_once)
    columns = ["id", "text", "section", "position"]
    with open_parquet(path) as opened:
        batches = list(read_batches(opened, path, columns))
    assert [row for batch in batches for row in batch.to_pylist()] == table.select(columns).to_pylist()


@pytest.mark.parametrize("column", ["text", "title"])
def test_lists_are_refused(column: str, tmp_path: Path) -> None:
    columns = {"id": ["a"], "text": ["x"], "title": ["t"], "not read": [["z"]]}
    path = tmp_path / "passages.parquet"
    pq.write_table(pa.table(columns), path)
    assert len(list(open_source(str(path)).rows())) == 1
    pq.write_table(pa.table(columns | {column: [["x", "y"]]}), path)
    with pytest.raises(InputError, match=f"passages.parquet: its column {column} holds lists; write one value per row"):
        list(open_source(str(path)).rows())


def test_a_struct_is_rejected_as_text(tmp_path: Path) -> None:
    path = tmp_path / "passages.parquet"
    pq.write_table(pa.table({"id": ["a"], "text": [{"x": "y", "z": 1}]}), path)
    [row] = open_source(str(path)).rows()
    assert isinstance(row, Rejected) and row.reason == "text is not text"


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9])
def test_a_broken_file_is_named_with_the_remedy(cut: float, tmp_path: Path) -> None:
    path = tmp_path / "passages.parquet"
    pq.write_table(mixed(4000, 1).select(["id", "text"]), path)
    data = path.read_bytes()
    place = int(len(data) * cut)
    for broken in (data[:place], data[:place] + b"\xff" * 64 + data[place + 64 :]):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"passages.parquet is damaged after row .*; fetch the file again$"):
            list(open_source(str(path)).rows())
