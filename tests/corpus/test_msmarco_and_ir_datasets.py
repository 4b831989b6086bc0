"""MS MARCO files with the judgements of TREC Deep Learning, and datasets of `ir_datasets`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from sources_to_damage import AS_GIVEN

from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import CleanCorpus
from stillhouse.corpus.ingestion import ingest_source
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import with_splits

Write, Read = Callable[..., Path], Callable[..., CleanCorpus]

MARCO = {
    "collection.tsv": '0\tFirst "passage".\n1\tSecond\n2\tThird\n',
    "queries.train.tsv": "1\tone\n2\ttwo\n3\tnever judged\n",
    "qrels.train.tsv": "1\t0\t0\t1\n2\t0\t1\t1\n2\t0\t2\t1\n",
    "queries.dev.tsv": "8\tread by nobody\n",
    "qrels.dev.tsv": "8\t0\t0\t1\n",
    "queries.dev.small.tsv": "4\tfour\n",
    "qrels.dev.small.tsv": "4 0 2 1\n",
    "queries.eval.tsv": "5\tfive\n",
    "msmarco-test2019-queries.tsv": "6\tsix\n7\tunjudged\n",
    "2019qrels-pass.txt": "6 Q0 0 3\n6 Q0 1 1\n6 Q0 2 0\n",
}


@pytest.mark.parametrize("packed", [False, True])
def test_msmarco(packed: bool, write: Write, read: Read) -> None:
    corpus = read(write(MARCO, packed=packed))
    assert [(p.id, p.title, p.text) for p in corpus.passages.values()] == [
        ("0", "", 'First "passage".'),
        ("1", "", "Second"),
        ("2", "", "Third"),
    ]
    # Query 1 and passage 1 have the same id but are unrelated.
    assert corpus.split_of == {"1": "train", "2": "train", "4": "dev", "6": "test"}
    assert [(row.query_id, row.passage_id, relevance) for row, relevance in corpus.qrels] == [
        ("6", "0", 3),
        ("6", "1", 1),
        ("6", "2", 0),
        ("4", "2", 1),
        ("1", "0", 1),
        ("2", "1", 1),
        ("2", "2", 1),
    ]
    assert corpus.rejected == []
    assert corpus.left_out == {"query: no qrel of its split names it": 2}


@pytest.mark.parametrize(
    ("file", "line", "kind", "reason"),
    [
        ("collection.tsv", "9\n", "passage", "columns are not id, text or id, title, text"),
        ("collection.tsv", "a b\tx\n", "passage", "id holds white space"),
        ("collection.tsv", "9\t \n", "passage", "empty passage"),
        ("queries.train.tsv", "9\n", "query", "columns are not id, text"),
        ("qrels.train.tsv", "1 0 2\n", "qrel", "not as many columns as the first row (4)"),
        ("qrels.train.tsv", "1 0 2 x\n", "qrel", "relevance is not a whole number"),
        ("qrels.train.tsv", "1 0 99 1\n", "qrel", "points to no passage"),
        ("qrels.train.tsv", "99 0 1 1\n", "qrel", "points to no query"),
    ],
)
def test_a_bad_row_of_msmarco_is_rejected_alone(
    file: str, line: str, kind: str, reason: str, write: Write, read: Read
) -> None:
    corpus = read(write(MARCO | {file: MARCO[file] + line}))
    assert [(row.kind, row.reason) for row in corpus.rejected] == [(kind, reason)]
    assert corpus.split_of == {"1": "train", "2": "train", "4": "dev", "6": "test"}


def test_msmarco_that_is_unclear_is_refused(write: Write, read: Read) -> None:
    with pytest.raises(InputError, match="but no queries for them"):
        read(write({"collection.tsv": "1\tx\n", "qrels.train.tsv": "1 0 1 1\n"}, folder="a"))
    with pytest.raises(InputError, match="does not say which split"):
        read(write({"collection.tsv": "1\tx\n", "queries.tsv": "1\tx\n"}, folder="b"))
    both = {"queries.dl20.tsv": "8\teight\n", "qrels.dl20.txt": "8 0 1 1\n"}
    with pytest.raises(InputError, match=r"2019qrels-pass\.txt and qrels\.dl20\.txt, which would be one test split"):
        read(write(MARCO | both, folder="d"))
    with pytest.raises(InputError, match=r"the source's (dev and test|test and dev) would both become test"):
        list(with_splits(open_source(str(write(MARCO, folder="e"))), {"dev": "test"}).rows())
    with pytest.raises(InputError, match=r"has collection\.tsv and corpus\.tsv"):
        read(write({"collection.tsv": "1\tx\n", "corpus.tsv": "1\t\tx\n"}, folder="c"))


class Scientific(NamedTuple):
    doc_id: str
    title: str
    text: str

    def default_text(self) -> str:
        return f"{self.title} {self.text}"


class Fieldless(NamedTuple):
    doc_id: str
    question: str
    reply: str

    def default_text(self) -> str:
        return f"{self.question} {self.reply}"


class Asked(NamedTuple):
    query_id: str
    text: str


class Answered(NamedTuple):
    query_id: str
    text: str
    answers: tuple[str, ...]


class Topic(NamedTuple):
    query_id: str
    title: str
    description: str


class Judged(NamedTuple):
    query_id: str
    doc_id: str
    relevance: int


class Dataset:
    """A dataset with the interface of `ir_datasets`, made from lists."""

    def __init__(self, docs: list[Any], queries: list[Any] | None = None, qrels: list[Any] | None = None) -> None:
        self._rows = {"docs": docs, "queries": queries, "qrels": qrels}

    def __getattr__(self, name: str) -> Callable[[], Any]:
        if name.startswith("has_"):
            return lambda: self._rows[name[4:]] is not None
        return lambda: iter(self._rows[name.removesuffix("_iter")] or [])


SCIFACT = [Scientific("1", "T", "x"), Scientific("2", "", "y"), Scientific("3", "only title", "")]
DATASETS = {
    "beir/scifact": Dataset(SCIFACT),
    "beir/scifact/train": Dataset(SCIFACT, [Asked("1", "a"), Asked("2", "b")], [Judged("1", "1", 1)]),
    "beir/scifact/test": Dataset(SCIFACT, [Asked("9", "c")], [Judged("9", "2", 2), Judged("9", "1", -1)]),
    "other/trec-covid": Dataset([Fieldless("d", "Q", "R")], [Topic("1", "t", "long")], [Judged("1", "d", 1)]),
    "wikir/training": Dataset(SCIFACT, [Answered("1", "a", ("x", "why"))], [Judged("1", "1", 1)]),
    "cut": Dataset([]),
    "queries-only": Dataset(None),  # type: ignore[arg-type]
}


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("ir_datasets")
    module.load = DATASETS.__getitem__  # type: ignore[attr-defined]
    module.docs_parent_id = lambda id: "/".join(id.split("/")[:2])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ir_datasets", module)


@pytest.mark.usefixtures("catalogue")
def test_ir_datasets(read: Read, tmp_path: Path) -> None:
    source = open_source("ir_datasets:beir/scifact/train+beir/scifact/test")
    facts = ingest_source(source, AS_GIVEN, tmp_path)
    assert facts["format"] == "ir_datasets" and facts["passages"] == 3
    assert facts["queries"] == {"train": 1, "dev": 0, "test": 1}
    assert facts["rejected"] == {}
    assert facts["left_out"] == {"query: no qrel names it": 1}
    other = ingest_source(open_source("ir_datasets:beir/scifact/test"), AS_GIVEN, tmp_path)
    assert other["source_digest"] != facts["source_digest"]


@pytest.mark.usefixtures("catalogue")
def test_fields_of_ir_datasets(read: Read) -> None:
    corpus = read("ir_datasets:beir/scifact/test")  # type: ignore[arg-type]
    assert [(p.id, p.title, p.text) for p in corpus.passages.values()] == [
        ("1", "T", "x"),
        ("2", "", "y"),
        ("3", "", "only title"),
    ]
    assert sorted((row.passage_id, relevance) for row, relevance in corpus.qrels) == [("1", 0), ("2", 2)]
    corpus = read("ir_datasets:other/trec-covid")  # type: ignore[arg-type]
    assert [(p.id, p.title, p.text) for p in corpus.passages.values()] == [("d", "", "Q R")]
    assert (corpus.queries["1"].text, corpus.split_of) == ("t", {"1": "test"})


@pytest.mark.usefixtures("catalogue")
def test_ir_datasets_answers_and_the_training_split(read: Read) -> None:
    """dpr-w100 has answers as well as qrels; wikir calls its train split `training`."""
    corpus = read("ir_datasets:wikir/training")  # type: ignore[arg-type]
    assert corpus.split_of == {"1": "train"} and list(corpus.answers) == [("1", "x", "text"), ("1", "why", "text")]


@pytest.mark.usefixtures("catalogue")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("ir_datasets:nothing", "no dataset 'nothing'"),
        ("ir_datasets:beir/scifact/test+other/trec-covid", "different corpora"),
        ("ir_datasets:queries-only", "has no documents"),
    ],
)
def test_an_id_without_a_usable_corpus_is_refused(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(source)


@pytest.mark.usefixtures("catalogue")
def test_a_download_that_fails_says_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Iterator[Any]:
        raise OSError("connection refused")
        yield

    monkeypatch.setattr(DATASETS["cut"], "docs_iter", fail, raising=False)
    with pytest.raises(InputError, match=r"connection refused.*https://ir-datasets\.com/cut"):
        list(open_source("ir_datasets:cut").rows())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(InputError, match=r"stillhouse\[datasets\]"):
        open_source("ir_datasets:beir/scifact")
    with pytest.raises(InputError, match="write it as ir_datasets:<id>"):
        open_source("beir/scifact", "ir_datasets")
    with pytest.raises(InputError, match="leave the format out"):
        open_source("ir_datasets:beir/scifact", "beir")
