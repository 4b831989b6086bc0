"""A line, article or document that is too long is refused by name and never read whole into memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources import article_tree, cells, json_files, lines
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Passage, Rejected, Row
from stillhouse.evaluation import runs
from stillhouse.evaluation.runs import read_run

LONGEST = 1 << 16
LONG = 40_000_000
"""Bytes of a line that is too long: six hundred times the limit."""
MOST = 8_000_000
"""Bytes of memory that reading may take: several times the limit, plus what any reading takes."""


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lines, cells, article_tree):
        monkeypatch.setattr(module, "LONGEST", LONGEST)
    monkeypatch.setattr(lines, "_SKIPPED_AT_ONCE", LONGEST)
    monkeypatch.setattr(json_files, "LONGEST_DOCUMENT", LONGEST)
    monkeypatch.setattr(runs, "LONGEST_LINE", LONGEST)


def read(place: Path, format: str) -> list[Row]:
    """Read all rows, check the peak of memory, and return the first three rows."""
    first: list[Row] = []
    tracemalloc.start()
    try:
        for row in open_source(str(place), format).rows():
            if len(first) < 3:
                first.append(row)
        return first
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < MOST, most


def long_line(begin: bytes, end: bytes) -> Iterator[bytes]:
    yield begin
    for _ in range(LONG // 1_000_000):
        yield b"x" * 1_000_000
    yield end + b"\n"


def json_line(id: str, text: str = "a text") -> bytes:
    return json.dumps({"_id": id, "text": text}).encode() + b"\n"


LINES = {
    # format: (file, lines before, beginning and end of the long line, lines after)
    "jsonl": ("passages.jsonl", json_line("a"), b'{"_id": "b", "text": "', b'"}', json_line("c")),
    "msmarco": ("collection.tsv", b"a\ttext\n", b"b\t", b"", b"c\ttext\n"),
    "beir": ("corpus.jsonl", b"", b'\xef\xbb\xbf{"_id": "b", "text": "', b'"}', json_line("c")),
    "dpr": ("psgs_w100.tsv", b'a\t"text"\tt\n', b'b\t"', b'"\tt', b'c\t"text"\tt\n'),
    "tables": ("passages.csv", b"id,text\na,text\n", b'b,"', b'"', b"c,text\n"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("format", LINES)
def test_a_long_line_is_rejected_and_the_rest_is_read(format: str, packed: bool, tmp_path: Path) -> None:
    name, before, begin, end, after = LINES[format]
    path = tmp_path / (f"{name}.gz" if packed else name)
    with gzip.open(path, "wb", 1) if packed else path.open("wb") as file:
        file.write(before)
        file.writelines(long_line(begin, end))
        file.write(after)
    rows = read(tmp_path, format)
    assert [row.id for row in rows if isinstance(row, Passage)] == (["a", "c"] if before else ["c"])
    [rejected] = [row for row in rows if isinstance(row, Rejected)]
    number = before.count(b"\n") + 1
    assert (rejected.kind, rejected.reason, rejected.where) == ("line", lines.TOO_LONG, f"{path.name}:{number}")
    assert begin.decode() in rejected.content and 190 < len(rejected.content) <= 200


def test_a_quoted_cell_that_never_ends_takes_no_more_than_the_limit(tmp_path: Path) -> None:
    with (tmp_path / "passages.csv").open("wb") as file:
        file.write(b'id,text\na,text\nb,"')
        for number in range(LONG // 10_000):
            file.write(b"%09999d\n" % number)
    rows = read(tmp_path, "tables")
    assert isinstance(rows[0], Passage) and isinstance(rows[1], Rejected)
    assert "field larger than field limit" in rows[1].reason


@pytest.mark.parametrize("suffix", ["md", "html"])
def test_a_long_article_is_rejected_alone(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(b"".join(long_line(b"<p>", b"")))
    (tmp_path / f"b.{suffix}").write_text("<p>text")
    rows = read(tmp_path, "article-tree")
    assert [type(row) for row in rows] == [Rejected, Passage]
    assert rows[0][1:4] == ("a", lines.TOO_LONG, f"a.{suffix}:1")


@pytest.mark.parametrize("packed", [False, True])
def test_a_long_document_is_refused(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / ("train.json.gz" if packed else "train.json")
    with gzip.open(path, "wb", 1) if packed else path.open("wb") as file:
        file.writelines(long_line(b'{"data": "', b'"}'))
    with pytest.raises(InputError, match=r"^\S*train.json(.gz)? is one JSON document of more than .* MiB, .*split it"):
        read(tmp_path, "squad")


def test_a_run_file_of_one_long_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "READ_AT_ONCE", LONGEST)
    (tmp_path / "test.trec").write_bytes(b"".join(long_line(b"q Q0 ", b" 1 1 s")))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"test.trec has a line of more than 65,536 bytes, so it is not a TREC"):
            read_run(tmp_path / "test.trec")
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()
