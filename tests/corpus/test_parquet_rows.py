"""All rows of a Parquet file are read in bounded memory, even if a few bytes stand for very many."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stillhouse.corpus.sources import parquet_rows, tables
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.lines import TOO_LONG
from stillhouse.corpus.sources.parquet_pages import read_chunks, read_pages
from stillhouse.corpus.sources.parquet_rows import open_parquet, read_batches
from stillhouse.corpus.sources.rows import Passage, Rejected
from stillhouse.errors import InputError

ROWS, LONG = 600, 1_000_000
MOST = 350_000_000
"""Bytes of memory that reading 600,000,000 bytes of texts may take: a few times the 64 MiB read at once."""

PEAK = """
import sys, tracemalloc
import pyarrow as pa
from stillhouse.corpus.sources.detect import open_source
tracemalloc.start()
count = sum(len(row.text) == {long} for row in open_source(sys.argv[1]).rows())
assert count == {rows}, count
print(tracemalloc.get_traced_memory()[1] + pa.default_memory_pool().max_memory())
"""


def one_value() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array(["x" * LONG]))


def different_values() -> pa.Array:
    return pa.array([f"{number:06d}" + "x" * (LONG - 6) for number in range(ROWS)])


LONG_TEXTS: dict[str, tuple[Callable[[], pa.Array], dict[str, Any]]] = {
    "one value of a dictionary": (one_value, {"store_schema": False}),
    "one value, read as a dictionary": (one_value, {}),
    "one value of a dictionary with a large limit": (
        one_value,
        {"store_schema": False, "dictionary_pagesize_limit": 1 << 30},
    ),
    "values that repeat the one before": (
        lambda: one_value().dictionary_decode(),
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    ),
    "different values": (different_values, {"use_dictionary": False, "write_batch_size": 4}),
}


@pytest.mark.parametrize("name", LONG_TEXTS)
def test_long_texts_take_a_bounded_memory(name: str, tmp_path: Path) -> None:
    texts, options = LONG_TEXTS[name]
    path = tmp_path / "passages.parquet"
    # All texts are long: 600 rows of 1,000,000 characters.
    ids = pa.array([f"p{number}" for number in range(ROWS)])
    pq.write_table(pa.table({"id": ids, "text": texts()}), path, **options)
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
    "a small dictionary": {"dictionary_pagesize_limit": 300, "write_batch_size": 8, "data_page_size": 500},
    "small row groups": {"row_group_size": 70},
    "pages of version 2": {"data_page_version": "2.0", "data_page_size": 500, "write_batch_size": 8},
    "statistics of pages": {"write_page_index": True, "data_page_size": 500, "write_batch_size": 8},
    "delta": {"use_dictionary": ["section"], "column_encoding": {"id": "DELTA_BYTE_ARRAY", "text": "DELTA_BYTE_ARRAY"}},
    "lengths": {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
    **{name: {"compression": name} for name in ("none", "gzip", "brotli", "lz4", "zstd")},
}


@pytest.mark.parametrize("at_once", [2_000, 100_000, parquet_rows.AT_ONCE])
@pytest.mark.parametrize("written", WRITTEN)
def test_every_row_is_read_in_small_batches(
    written: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path = mixed(4000, len(written)), tmp_path / "passages.parquet"
    pq.write_table(table, path, **WRITTEN[written])
    sizes: list[int] = []
    plain = parquet_rows._plain

    def seen(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(sum(len(value.encode()) for column in batch.columns[:3] for value in column.to_pylist() if value))
        return plain(batch)

    monkeypatch.setattr(parquet_rows, "_plain", seen)
    monkeypatch.setattr(parquet_rows, "AT_ONCE", at_once)
    monkeypatch.setattr(parquet_rows, "HANDED_OVER", at_once // 4)
    columns = ["id", "text", "section", "position"]
    with open_parquet(path) as opened:
        batches = list(read_batches(opened, path, columns))
        with path.open("rb") as file:
            pages = [page for chunks in read_chunks(file) for chunk in chunks for page in read_pages(file, chunk)]
    assert [row for batch in batches for row in batch.to_pylist()] == table.select(columns).to_pylist()
    assert all(batch.nbytes <= at_once // 4 or len(batch) == 1 for batch in batches)
    largest = max(page.size for page in pages)
    longest = max(len(text.encode()) for text in table["text"].to_pylist())
    assert max(sizes) <= max(at_once, longest + 100) + 2 * len(columns) * largest


def long_row(path: Path, table: str, id: str, text: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(tables, "LONGEST", 1 << 16)
    monkeypatch.setattr(parquet_rows, "HANDED_OVER", 1 << 14)
    first = {"passages": "id", "queries": "id"}[table]
    pq.write_table(pa.table({first: ["a", id, "c"], "text": ["one", text, "two"]}), path / f"{table}.parquet")
    return list(open_source(str(path), "tables").rows())


def test_a_long_value_is_rejected_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\u00e9" * (1 << 15)
    for id, shown in (("b", "b"), ("b" * 70_000, "b" * 200)):
        first, rejected, last = long_row(tmp_path, "passages", id, text, monkeypatch)
        assert isinstance(first, Passage) and isinstance(last, Passage) and (first.id, last.id) == ("a", "c")
        assert isinstance(rejected, Rejected)
        assert rejected[:4] == ("passage", shown, TOO_LONG, "passages.parquet:2")
        assert len(rejected.content) <= 200 and "\u00e9\u00e9" in rejected.content + text * (id != "b")
    assert len(long_row(tmp_path, "passages", "b", text[:-20], monkeypatch)[1].text) == len(text) - 20
    [rejected] = [row for row in long_row(tmp_path, "queries", "b", text, monkeypatch) if isinstance(row, Rejected)]
    assert rejected[:4] == ("query", "b", TOO_LONG, "queries.parquet:2")


def test_pages_that_would_take_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "LARGEST_PAGES", 1 << 20)
    path = tmp_path / "passages.parquet"
    for size, group in ((1_000_000, 1), (60_000_000, 1)):
        pq.write_table(pa.table({"id": ["a", "b"], "text": ["x", "x" * size]}), path, row_group_size=group)
        if size < 1 << 20:
            assert len(list(open_source(str(path)).rows())) == 2
        else:
            with pytest.raises(
                InputError, match=r"passages.parquet: 6\d,\d+,\d+ bytes of row group 2 .* fewer rows per "
            ):
                list(open_source(str(path)).rows())


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


def test_damage_anywhere_is_detected_or_harmless(tmp_path: Path) -> None:
    """The footer is damaged too, where some of pyarrow's accessors crash the process."""
    path = tmp_path / "passages.parquet"
    table = pa.table({"id": ["a", "b", "c"], "text": ["x" * 50, "y", "z"]})
    pq.write_table(table, path, row_group_size=2, store_schema=False)
    data = path.read_bytes()
    refused = 0
    for place in range(len(data)):
        for bit in (1, 8):
            path.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
            try:
                assert len(list(open_source(str(path)).rows())) == 3, place
            except InputError as error:
                refused += "is damaged after row" in str(error)
    assert refused > len(data) // 10
