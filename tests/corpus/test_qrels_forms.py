"""The forms in which people have qrels, and the errors for labels that cannot be read."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
from beir_source import write_beir

from stillhouse.core.errors import InputError
from stillhouse.corpus.first_look import look_at
from stillhouse.corpus.ingestion import ingest_source
from stillhouse.corpus.settings import IngestSettings
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.store import Corpus

PASSAGES = {f"d{n}": f"Passage {n} tells of river {n}. It is long. It has an end." for n in range(6)}
ROWS = [("q0", "d0", 2), ("q1", "d1", 1), ("q1", "d2", 0)]
NAMES = ("query-id", "corpus-id", "score")


def source(folder: Path, **qrels: str | bytes) -> Path:
    """A BEIR folder whose qrels are files with these contents; `__` in a name stands for a dot."""
    queries = [f"which river is {n}" for n in range(3)]
    write_beir(folder, [{"_id": id, "text": text} for id, text in PASSAGES.items()], queries)
    (folder / "qrels").mkdir()
    for name, content in qrels.items():
        data = content.encode() if isinstance(content, str) else content
        (folder / "qrels" / name.replace("__", ".")).write_bytes(data)
    return folder


def ingest(location: Path, target: Path) -> Corpus:
    """The corpus of a source, with queries made from it where that is the usual way."""
    settings = IngestSettings(
        dev_fraction=0, heldout_dev_articles=0.2, heldout_test_articles=0.2, pair_sentence_words=2, seed=1
    )
    target.mkdir()
    ingest_source(open_source(str(location)), settings, target)
    return Corpus.open(target)


def table(separator: str, rows: list[tuple[str, ...]], end: str = "\n") -> str:
    return "".join(separator.join(row) + end for row in rows)


BEIR = [(query, passage, str(grade)) for query, passage, grade in ROWS]
FLOAT = [(query, passage, f"{grade}.0") for query, passage, grade in ROWS]
TREC = [(query, "0", passage, str(grade)) for query, passage, grade in ROWS]
FORMS: dict[str, tuple[str, str | bytes]] = {
    "beir": ("test.tsv", table("\t", [NAMES, *BEIR])),
    "without a header": ("test.tsv", table("\t", BEIR)),
    "grades with a fraction": ("test.tsv", table("\t", [NAMES, *FLOAT])),
    "columns in another order": (
        "test.tsv",
        table("\t", [("score", "corpus_id", "query_id"), *[r[::-1] for r in BEIR]]),
    ),
    "trec with spaces": ("test.tsv", table(" ", TREC)),
    "trec with tabs, CRLF": ("test.tsv", table("\t", TREC, "\r\n")),
    "a tab at the end": ("test.tsv", table("\t", BEIR, "\t\n")),
    "trec with a header": ("test.txt", table("\t", [("qid", "iter", "docid", "rel"), *TREC])),
    "trec with fractions": ("test.qrels", table("  ", [(*row[:3], f"{row[3]}.0") for row in TREC])),
    "mteb": ("test.jsonl", "".join(json.dumps(dict(zip(NAMES, (*row[:2], float(row[2]))))) + "\n" for row in ROWS)),
    "gzip": (
        "test.jsonl.gz",
        gzip.compress("".join(json.dumps(dict(zip(NAMES, row))) + "\n" for row in ROWS).encode()),
    ),
    "other names": (
        "test.jsonl",
        "".join(json.dumps(dict(zip(("query_id", "corpus_id", "relevance"), row))) + "\n" for row in ROWS),
    ),
    "a JSON list": ("test.json", json.dumps([dict(zip(NAMES, row)) for row in ROWS], indent=1)),
    "csv": ("test.csv", table(",", [NAMES, *FLOAT])),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_labels(form: str, tmp_path: Path) -> None:
    name, content = FORMS[form]
    corpus = ingest(source(tmp_path / "source", **{name: content}), tmp_path / "corpus")
    test = corpus.qrels_of("test")
    test = test[test["query_id"].isin(["q0", "q1"])]
    assert list(test[["query_id", "passage_id", "relevance"]].itertuples(index=False, name=None)) == ROWS
    assert list(corpus.unjudged["query_id"]) == ["q2"] and not len(corpus.rejected)


def test_numbered_parquet_files_of_a_split_are_read_together(tmp_path: Path) -> None:
    folder = source(tmp_path / "source")
    for number, row in enumerate(ROWS):
        frame = pd.DataFrame([dict(zip(NAMES, row))])
        frame.to_parquet(folder / "qrels" / f"validation-0000{number}-of-00003.parquet")
    assert look_at(str(folder)).questions == {"dev": 2}


def test_a_folder_of_tables_takes_json_lines_and_rows_of_trec(tmp_path: Path) -> None:
    folder = source(tmp_path / "source", test__tsv=table(" ", TREC))
    pd.DataFrame({"id": list(PASSAGES), "text": list(PASSAGES.values())}).to_parquet(folder / "corpus.parquet")
    (folder / "corpus.jsonl").unlink()
    opened = open_source(str(folder))
    assert opened.format == "tables" and look_at(str(folder)).questions == {"test": 2}


LOST = {
    "no whole number": (
        {"train.tsv": table("\t", BEIR), "test.tsv": "q0\td0\t0.5\n"},
        "labels of test.*whole number.*qrels/test.tsv:1: q0 d0 0.5",
    ),
    "other queries": ({"test.tsv": "x0\td0\t1\nx1\td1\t1\n"}, "labels of test.*2 × qrel: points to no query"),
    "other passages": ({"dev.tsv": "q0\tx\t1\n", "test.tsv": table("\t", BEIR)}, "labels of dev.*points to no passage"),
    "two columns": ({"test.tsv": "q0\td0\n"}, "labels of test.*not three columns"),
    "no key": ({"test.jsonl": '{"q": "q0", "d": "d0"}\n'}, "labels of test.*no query"),
}


@pytest.mark.parametrize("name", LOST)
def test_made_questions_never_stand_in_for_labels_that_are_lost(name: str, tmp_path: Path) -> None:
    """Neither `new`, which looks at the source, nor `ingest` goes on."""
    qrels, message = LOST[name]
    folder = source(tmp_path / "source", **qrels)
    with pytest.raises(InputError, match=message):
        ingest(folder, tmp_path / "corpus")
    with pytest.raises(InputError, match=message):
        look_at(str(folder))


@pytest.mark.parametrize("name", ["test.ods", "all.tsv", "notes.md"])
def test_a_file_of_qrels_that_would_not_be_read_is_refused(name: str, tmp_path: Path) -> None:
    folder = source(tmp_path / "source", test__tsv=table("\t", BEIR), **{name: "q0\td0\t1\n"})
    with pytest.raises(InputError, match=f"{name} is not a split"):
        open_source(str(folder))


def test_two_files_of_one_split_are_refused(tmp_path: Path) -> None:
    folder = source(tmp_path / "source", test__tsv=table("\t", BEIR), test__jsonl="{}\n")
    with pytest.raises(InputError, match=r"both qrels/test.jsonl and qrels/test.tsv"):
        open_source(str(folder))


def test_a_source_without_passages_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "passages.jsonl"
    path.write_text('{"id": "a", "words": "no text"}\n')
    for read in (lambda: ingest(path, tmp_path / "corpus"), lambda: look_at(str(path))):
        with pytest.raises(InputError, match=r"no passage \(1 × passage: no text; the first is passages.jsonl:1"):
            read()
