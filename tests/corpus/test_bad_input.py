"""Every way in which a source can be wrong: the row is rejected with a reason, or the source is refused by name."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import CleanCorpus, clean
from stillhouse.corpus.sources.detect import open_source

CORPUS = ['{"_id": "p1", "title": "One", "text": "first"}', '{"_id": "p2", "title": "", "text": "second"}']
QUERIES = ['{"_id": "q1", "text": "ask one"}', '{"_id": "q2", "text": "ask two"}']
TRAIN = ["query-id\tcorpus-id\tscore", "q1\tp1\t1"]
TEST = ["query-id\tcorpus-id\tscore", "q2\tp2\t1"]


def write_beir(
    folder: Path,
    *,
    corpus: list[str] = CORPUS,
    queries: list[str] = QUERIES,
    train: list[str] = TRAIN,
    dev: list[str] | None = None,
    test: list[str] = TEST,
) -> Path:
    (folder / "qrels").mkdir(parents=True)
    files = {
        "corpus.jsonl": corpus,
        "queries.jsonl": queries,
        "qrels/train.tsv": train,
        "qrels/dev.tsv": dev,
        "qrels/test.tsv": test,
    }
    for name, lines in files.items():
        if lines is not None:
            (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def read(folder: Path) -> CleanCorpus:
    return clean(open_source(str(folder)).rows())


def test_a_good_source_loses_nothing(tmp_path: Path) -> None:
    corpus = read(write_beir(tmp_path / "s"))
    assert corpus.rejected == []
    assert list(corpus.passages) == ["p1", "p2"]
    assert corpus.split_of == {"q1": "train", "q2": "test"}


def test_a_title_without_text_becomes_the_text(tmp_path: Path) -> None:
    """Many documents of BEIR's corpora have no abstract; its own evaluation reads their titles."""
    lines = ['{"_id": "p3", "title": "A title", "text": ""}', '{"_id": "p4", "title": " ", "text": " "}']
    corpus = read(write_beir(tmp_path / "s", corpus=[*CORPUS, *lines]))
    assert [(row.id, row.reason) for row in corpus.rejected] == [("p4", "empty passage")]
    assert [(row.title, row.text) for row in corpus.passages.values() if row.id == "p3"] == [("", "A title")]


# name: (file, lines added to it, rejected rows as (kind, id, reason))
CASES = {
    "not JSON": ("corpus", ["{oops"], [("line", "", "not JSON")]),
    "not an object": ("corpus", ["[1, 2]"], [("line", "", "not a JSON object")]),
    "deep nesting": ("corpus", ["[" * 100_000], [("line", "", "not JSON")]),
    "no id": ("corpus", ['{"text": "x"}'], [("passage", "", "no _id")]),
    "no text": ("corpus", ['{"_id": "p3"}'], [("passage", "p3", "no text")]),
    "text is null": ("corpus", ['{"_id": "p3", "text": null}'], [("passage", "p3", "text is not text")]),
    "empty id": ("corpus", ['{"_id": "", "text": "x"}'], [("passage", "", "empty id")]),
    "id with a space": ("corpus", ['{"_id": "a b", "text": "x"}'], [("passage", "a b", "id holds white space")]),
    "id with NUL": (
        "corpus",
        ['{"_id": "p1\\u0000x", "text": "x"}'],
        [("passage", "p1\0x", "id holds a control character")],
    ),
    "query id with an escape sequence": (
        "queries",
        ['{"_id": "q\\u001b[2J", "text": "x"}'],
        [("query", "q\x1b[2J", "id holds a control character")],
    ),
    "lone surrogate": ("corpus", ['{"_id": "p3", "text": "x \\ud800"}'], [("passage", "p3", "not valid Unicode")]),
    "empty passage": ("corpus", ['{"_id": "p3", "text": " \\n"}'], [("passage", "p3", "empty passage")]),
    "same id, same text": ("corpus", [CORPUS[0]], [("passage", "p1", "duplicate id, same text")]),
    "same id, other text": (
        "corpus",
        ['{"_id": "p1", "text": "else"}'],
        [("passage", "p1", "duplicate id, different text")],
    ),
    "empty query": ("queries", ['{"_id": "q3", "text": ""}'], [("query", "q3", "empty query")]),
    "query twice": (
        "queries",
        [QUERIES[0], '{"_id": "q1", "text": "else"}'],
        [("query", "q1", "duplicate id, same text"), ("query", "q1", "duplicate id, different text")],
    ),
    "query without a label": ("queries", ['{"_id": "q3", "text": "x"}'], []),
    "qrel to no query": ("train", ["q9\tp1\t1"], [("qrel", "q9", "points to no query")]),
    "qrel to no passage": ("train", ["q1\tp9\t1"], [("qrel", "q1", "points to no passage")]),
    "negative": ("train", ["q1\tp2\t-1"], [("qrel", "q1", "negative relevance")]),
    "not a number": ("train", ["q1\tp2\thigh"], [("qrel", "q1", "relevance is not a whole number")]),
    "two columns": ("train", ["q1\tp2"], [("qrel", "q1", "not as many columns as the first row (3)")]),
    "qrel twice": (
        "train",
        ["q1\tp1\t1", "q1\tp1\t2"],
        [("qrel", "q1", "duplicate qrel"), ("qrel", "q1", "duplicate qrel, different relevance")],
    ),
    "test query in train": ("train", ["q2\tp1\t1"], [("qrel", "q2", "its query is in test")]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_row_is_rejected_and_the_rest_kept(name: str, tmp_path: Path) -> None:
    file, lines, expected = CASES[name]
    good = {"corpus": CORPUS, "queries": QUERIES, "train": TRAIN}[file]
    path = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "train": "qrels/train.tsv"}[file]
    corpus = read(write_beir(tmp_path / "s", **{file: good + lines}))  # type: ignore[arg-type]
    assert [(row.kind, row.id, row.reason) for row in corpus.rejected] == expected
    assert [row.where for row in corpus.rejected] == [f"{path}:{line}" for line in range(3, 3 + len(expected))]
    assert next((row.id, row.text) for row in corpus.passages.values()) == ("p1", "first")
    assert list(corpus.passages) == ["p1", "p2"]
    assert corpus.split_of == {"q1": "train", "q2": "test"}
    assert [(row.query_id, row.passage_id, relevance, row.split) for row, relevance in corpus.qrels] == [
        ("q1", "p1", 1, "train"),
        ("q2", "p2", 1, "test"),
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_only_the_line_that_is_not_utf8_is_rejected(packed: bool, tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "s")
    path = folder / "corpus.jsonl"
    data = path.read_bytes() + b'{"_id": "p3", "text": "caf\xe9"}\n{"_id": "p4", "text": "caf\xc3\xa9"}\n'
    path.unlink()
    (folder / "corpus.jsonl.gz" if packed else path).write_bytes(gzip.compress(data) if packed else data)
    corpus = read(folder)
    assert [row.reason for row in corpus.rejected] == ["not UTF-8"]
    assert {row.id: row.text for row in corpus.passages.values()}["p4"] == "café"


def test_byte_order_marks_crlf_and_blank_lines_are_accepted(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "s")
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv"):
        path = folder / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n\r\n")
    corpus = read(folder)
    assert corpus.rejected == [] and len(corpus.passages) == 2 and len(corpus.qrels) == 2
    path.write_text(path.read_text("utf-8-sig"), "utf-16")
    with pytest.raises(InputError, match=r"train\.tsv is in UTF-16-[LB]E; save it as UTF-8"):
        read(folder)


def test_leaks_are_removed_from_the_split_that_trains(tmp_path: Path) -> None:
    texts = {"t": "Who  WROTE it", "d": "Where is it", "a": "who wrote it", "b": "where IS it", "c": "ok"}
    queries = [json.dumps({"_id": id, "text": text}) for id, text in texts.items()]
    header = TRAIN[:1]
    corpus = read(
        write_beir(
            tmp_path / "s",
            queries=queries,
            train=[*header, "a\tp1\t1", "b\tp1\t1", "c\tp1\t1", "d\tp1\t1", "t\tp2\t1"],
            dev=[*header, "d\tp2\t1", "t\tp1\t1"],
            test=[*header, "t\tp1\t1"],
        )
    )
    assert corpus.split_of == {"t": "test", "d": "dev", "c": "train"}
    assert {row.id: row.reason for row in corpus.rejected if row.kind == "query"} == {
        "a": "the same text is in test",
        "b": "the same text is in dev",
    }
    assert [(row.query_id, row.split) for row, _ in corpus.qrels] == [("c", "train"), ("d", "dev"), ("t", "test")]


def break_truncated_gzip(folder: Path) -> None:
    data = gzip.compress((folder / "corpus.jsonl").read_bytes() * 50)
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl.gz").write_bytes(data[:-12])


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no corpus": (lambda folder: (folder / "corpus.jsonl").unlink(), "has no known format: it holds "),
    "empty corpus": (lambda folder: (folder / "corpus.jsonl").write_text(""), "corpus.jsonl is empty"),
    "qrels without queries": (lambda folder: (folder / "queries.jsonl").unlink(), "no queries.jsonl"),
    "unknown split": (lambda folder: (folder / "qrels" / "eval.tsv").write_text("x"), "eval.tsv is not a split"),
    "both forms": (lambda folder: (folder / "corpus.jsonl.gz").write_bytes(b""), "both corpus.jsonl and"),
    "truncated gzip": (break_truncated_gzip, "corpus.jsonl.gz is cut off or damaged"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_broken_source_is_refused_by_name(name: str, tmp_path: Path) -> None:
    damage, message = REFUSED[name]
    folder = write_beir(tmp_path / "s")
    damage(folder)
    with pytest.raises(InputError, match=message):
        read(folder)


def test_a_missing_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        open_source(str(tmp_path / "nothing"))


def test_rejects_keep_only_the_beginning_of_a_long_id(tmp_path: Path) -> None:
    """If the file has a different delimiter than the format, each whole line is an id."""
    ids = ["p" * 200, "p" * 201, "\u00e9" * 10_000]
    (tmp_path / "collection.tsv").write_text("".join(f"{id}\n" for id in ids), encoding="utf-8")
    rejected = clean(open_source(str(tmp_path), "msmarco").rows()).rejected
    assert [row.id for row in rejected] == [ids[0], "p" * 199 + "…", "\u00e9" * 199 + "…"]
    assert [len(row.content) for row in rejected] == [200, 200, 200]
