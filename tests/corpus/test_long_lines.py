"""A line, article or document that is too long is refused by name and never read whole into memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillhouse.corpus.sources import article_tree, cells, json_files, lines
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Passage, Rejected, Row
from stillhouse.errors import InputError
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


EMPTY = {
    "objects": (b"{},", b"{}"),
    "objects of one field": (b'{"b":1},', b"{}"),
    "lists": (b"[],", b"[]"),
}


@pytest.fixture
def of_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the real limits on length, and a low limit on the number of lists."""
    for module in (lines, json_files):
        monkeypatch.setattr(module, "LONGEST", 1 << 26)
    monkeypatch.setattr(json_files, "LONGEST_DOCUMENT", 1 << 29)
    monkeypatch.setattr(lines, "MOST_LISTS", 1000)
    monkeypatch.setattr(json_files, "MOST_LISTS", 1000)


@pytest.mark.parametrize("kind", EMPTY)
def test_a_line_of_brackets_is_rejected_before_it_fills_the_memory(
    kind: str, of_brackets: None, tmp_path: Path
) -> None:
    one, last = EMPTY[kind]
    with (tmp_path / "passages.jsonl").open("wb") as file:
        file.write(b'{"_id": "a", "text": "a text", "c": [' + one * 300_000 + last + b"]}\n")
        file.write(b'{"_id": "b", "text": "a text", "c": [' + one * 900 + last + b"]}\n")
    rows = read(tmp_path, "jsonl")
    assert [type(row) for row in rows] == [Rejected, Passage]
    assert rows[0][2:4] == (lines.TOO_MANY_LISTS, "passages.jsonl:1")


@pytest.mark.parametrize("kind", EMPTY)
def test_an_element_and_a_document_of_brackets_are_refused(kind: str, of_brackets: None, tmp_path: Path) -> None:
    one, last = EMPTY[kind]
    path = tmp_path / "train.json"
    path.write_bytes(b'[{"a": 1}, [' + one * 1_000_000 + last + b"]]")
    elements = json_files.read_elements(path)
    assert next(elements) == {"a": 1}
    with pytest.raises(InputError, match=r"after element 1 \(more than .* lists and objects; cut it\)"):
        next(elements)
    with pytest.raises(InputError, match=r"or of more than 1,000 lists and objects, .*divide it"):
        json_files.read_document(path)


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_of_exactly_the_longest_length_is_read(end: bytes, tmp_path: Path) -> None:
    """The limit includes the line end, which the last line may lack."""
    line = json_line("a", "x" * (LONGEST - len(json_line("a", "")) + 1 - len(end)))[:-1] + end
    assert len(line) == LONGEST
    for content, taken in ((line, 1), (line[:-3] + b"x" + line[-3:], 0)):
        (tmp_path / "passages.jsonl").write_bytes(content + (b"" if not end else json_line("b")))
        rows = list(open_source(str(tmp_path), "jsonl").rows())
        assert sum(isinstance(row, Passage) for row in rows) == taken + bool(end)
        assert len(rows) == 1 + bool(end)


def test_a_quoted_cell_that_never_ends_takes_no_more_than_the_limit(tmp_path: Path) -> None:
    with (tmp_path / "passages.csv").open("wb") as file:
        file.write(b'id,text\na,text\nb,"')
        for number in range(LONG // 10_000):
            file.write(b"%09999d\n" % number)
    rows = read(tmp_path, "tables")
    assert isinstance(rows[0], Passage) and isinstance(rows[1], Rejected)
    assert "field larger than field limit" in rows[1].reason


def test_a_quoted_cell_may_be_longer_than_pythons_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "some words, " * 20_000
    for module in (lines, cells):
        monkeypatch.setattr(module, "LONGEST", 1 << 20)
    for name, row in (("passages.csv", 'id,text\na,"{}"\n'), ("passages.tsv", 'id\ttext\na\t"{}"\n')):
        (tmp_path / name).write_text(row.format(text))
        assert [row.text for row in open_source(str(tmp_path / name)).rows() if isinstance(row, Passage)] == [text]


@pytest.mark.parametrize("suffix", ["md", "html"])
def test_a_long_article_is_rejected_alone(suffix: str, tmp_path: Path) -> None:
    if suffix == "html":
        pytest.importorskip("lxml")
    (tmp_path / f"a.{suffix}").write_bytes(b"".join(long_line(b"<p>", b"")))
    (tmp_path / f"b.{suffix}").write_text("<p>text")
    rows = read(tmp_path, "html-tree" if suffix == "html" else "article-tree")
    assert [type(row) for row in rows] == [Rejected, Passage]
    assert rows[0][1:4] == ("a", lines.TOO_LONG, f"a.{suffix}:1")


@pytest.mark.parametrize("packed", [False, True])
def test_a_long_document_is_refused(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / ("train.json.gz" if packed else "train.json")
    with gzip.open(path, "wb", 1) if packed else path.open("wb") as file:
        file.writelines(long_line(b'{"data": "', b'"}'))
    with pytest.raises(InputError, match=r"^\S*train.json(.gz)? is one JSON document of more than .* MiB, .*divide it"):
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
