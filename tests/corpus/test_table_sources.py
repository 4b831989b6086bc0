"""Parquet, CSV and TSV tables, and a corpus read back as a source."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import CleanCorpus
from stillhouse.corpus.ingestion import ingest_source
from stillhouse.corpus.schemas import SCHEMAS
from stillhouse.corpus.settings import IngestSettings
from stillhouse.corpus.sources.cells import read_cells
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.store import Corpus

Write, Read = Callable[..., Path], Callable[..., CleanCorpus]

PASSAGES = 'id,title,text\np1,One,"first, with ""quotes""\n\nand a blank line"\n2,,second\n'
QUERIES = "qid,query\nq1,ask one\nq2,ask two\n"
QRELS = "query-id,corpus-id,score,split\nq1,p1,1,train\nq2,2,2,test\n"
ANSWERS = "query_id,answer,kind\nq1,a,\nq2,b+,regex\n"
CSV = {"passages.csv": PASSAGES, "queries.csv": QUERIES, "qrels.csv": QRELS, "answers.csv": ANSWERS}


def check(corpus: CleanCorpus) -> None:
    assert [(p.id, p.title, p.text, p.article_id) for p in corpus.passages.values()] == [
        ("p1", "One", 'first, with "quotes"\n\nand a blank line', "p1"),
        ("2", "", "second", "2"),
    ]
    assert corpus.split_of == {"q1": "train", "q2": "test"} and corpus.queries["q1"].text == "ask one"
    assert sorted((row.query_id, row.passage_id, relevance) for row, relevance in corpus.qrels) == [
        ("q1", "p1", 1),
        ("q2", "2", 2),
    ]
    assert list(corpus.answers) == [("q1", "a", "text"), ("q2", "b+", "regex")]
    assert corpus.rejected == []


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_delimited_tables(form: str, packed: bool, write: Write, read: Read) -> None:
    def convert(text: str) -> str:
        return text if form == "csv" else text.replace(", with", "\x00").replace(",", "\t").replace("\x00", ", with")

    files = {name.replace("csv", form): convert(content) for name, content in CSV.items()}
    folder = write(files, packed=packed)
    assert open_source(str(folder)).format == "tables"
    check(read(folder))


APART = {"semicolons": ";", "tabs": "\t", "bars": "|", "commas": ","}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("name", APART)
def test_the_delimiter_is_detected(name: str, suffix: str, packed: bool, tmp_path: Path, read: Read) -> None:
    """Python's `csv` writes the files; the texts contain other delimiters more often than the right one."""
    texts = ["first; with, every | of; them, and more; more, more", "a\ttab", 'a "quote"', "plain"]
    tables = {
        "passages": [["id", "title", "text"], *([f"p{n}", "a,b;c", text] for n, text in enumerate(texts))],
        "queries": [["qid", "query"], ["q", "what, who; where|when"]],
        "qrels": [["query_id", "passage_id", "score", "split"], ["q", "p0", "1", "test"]],
    }
    for table, rows in tables.items():
        opened = gzip.open if packed else open
        with opened(tmp_path / f"{table}.{suffix}{'.gz' * packed}", "wt", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=APART[name]).writerows(rows)
    corpus = read(tmp_path)
    assert [row.text for row in corpus.passages.values()] == texts and corpus.rejected == []
    assert corpus.queries["q"].text == "what, who; where|when"
    expected = {"csv": "commas", "tsv": "tabs"}[suffix]
    notes = [f"{table}.{suffix}{'.gz' * packed} has {name} between its cells" for table in tables]
    assert open_source(str(tmp_path)).notes == (() if name == expected else tuple(notes))


TSV_LINES = {
    "quotes that are text": ['p1\t"To be, or not\tA', 'p2\tsaid: "x"\tB', 'p3\tx"\tC'],
    "a quote in the middle of a cell that begins with one": ['p1\t"To be" or not\tA', "p2\tx\tB"],
    "the last line": ["p1\tx\tA", 'p2\t"To be\tB'],
    "every line": ['p1\t"a\tA', 'p2\t"b\tB', 'p3\t"c"\tC'],
}
"""Lines of a tab-separated file whose quotes are text, except those around c."""


@pytest.mark.parametrize("case", TSV_LINES)
def test_a_quote_that_is_text_swallows_no_rows(case: str, write: Write, read: Read) -> None:
    """MS MARCO's files and many others do not quote cells; a CSV reader takes 500 rows for one cell."""
    rows = [f"n{number}\ttext {number}\tT" for number in range(300)]
    lines = [*rows[:150], *TSV_LINES[case][:-1], *rows[150:], TSV_LINES[case][-1]]
    corpus = read(write({"passages.tsv": "\n".join(["id\ttext\ttitle", *lines]) + "\n"}))
    assert len(corpus.passages) == len(lines) and corpus.rejected == []
    for line in TSV_LINES[case]:
        id, text, title = line.split("\t")
        found = next(passage for passage in corpus.passages.values() if passage.id == id)
        assert (found.text, found.title) == (text.strip('"') if text == '"c"' else text, title)


@pytest.mark.parametrize("below", ["n{0},plain", 'n{0},"quoted, {0}"', 'n{0},"one\nand another, {0}"'])
def test_a_quote_without_an_end_costs_its_own_row(below: str, write: Write, read: Read) -> None:
    rows = [below.format(number) for number in range(300)]
    lines = ["id,text", *rows[:100], 'x,"open', *rows[100:200], 'y,"a" b', *rows[200:]]
    corpus = read(write({"passages.csv": "\n".join(lines) + "\n"}))
    assert list(corpus.passages) == [f"n{number}" for number in range(300)]
    assert [row.content for row in corpus.rejected] == ['x,"open', 'y,"a" b']


TABLES = [{"id": "1", "text": "one", "title": "One"}, {"id": "2", "text": "two", "title": "Two"}]
LABELS = {"queries.tsv": "qid\tquery\nq\task\n", "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\t2\t1\n"}


@pytest.mark.parametrize("names", ["id\ttext\ttitle", " docid\t text\t title", "text\tid\ttitle"])
def test_a_table_named_corpus_is_read_by_the_names_of_its_columns(names: str, write: Write, read: Read) -> None:
    written = [name.strip().removeprefix("doc") for name in names.split("\t")]
    lines = [names, *("\t".join(row[name] for name in written) for row in TABLES)]
    corpus = read(write({"corpus.tsv": "\n".join(lines) + "\n"} | LABELS))
    assert [(row.id, row.text, row.title) for row in corpus.passages.values()] == [
        ("1", "one", "One"),
        ("2", "two", "Two"),
    ]
    assert [(row.query_id, row.passage_id, row.split) for row, _ in corpus.qrels] == [("q", "2", "test")]
    assert not corpus.rejected


QUERIES_OF_MSMARCO = {"queries.train.tsv": "q\task\n", "qrels.train.tsv": "q\t0\t1\t1\n"}
HEADED = "id\ttext\n1\tone\n"


@pytest.mark.parametrize(
    "files",
    [
        {"corpus.tsv": "1\tOne\tone\n"} | QUERIES_OF_MSMARCO | {"queries.eval.tsv": "x\tother\n"},
        {"corpus.tsv": HEADED} | QUERIES_OF_MSMARCO,
        {"corpus.tsv": HEADED, "msmarco-queries.dev.tsv": "q\task\n", "msmarco-qrels.dev.tsv": "q\t0\t1\t1\n"},
        {"corpus.tsv": HEADED, "titles.tsv": "1\tOne\n"},
        {"corpus.tsv": "1\tThe title, content, and date\n"},
    ],
)
def test_ms_marcos_own_files_stay_its_own(files: dict[str, str], write: Write, read: Read) -> None:
    folder = write(files)
    assert open_source(str(folder)).format == "msmarco"
    corpus = read(folder)
    assert list(corpus.passages) == ["1"] and len(corpus.qrels) == ("train" in str(files) or "dev" in str(files))


def test_json_lines_name_articles_as_a_json_list_does(write: Write, read: Read) -> None:
    rows = [{"docid": f"{n}", "title": "T", "text": f"{n}", "article_id": "A", "position": n} for n in range(3)]
    as_lines = read(write({"passages.jsonl": "\n".join(map(json.dumps, rows))}, folder="lines"))
    as_list = read(write({"passages.json": json.dumps(rows)}, folder="list"))
    found = [[row._replace(where="") for row in corpus.passages.values()] for corpus in (as_lines, as_list)]
    assert found[0] == found[1] and {row.article_id for row in found[0]} == {"A"}
    others = [{"pid": None, "text": "a", "article_id": None, "position": "top"}, {"doc_id": "d", "text": "b"}]
    both = read(write({"passages.jsonl": "\n".join(map(json.dumps, [*others, others[1] | {"text": "c"}]))}))
    assert [row.id == row.article_id for row in both.passages.values()] == [True] * 3


TEXTS = st.text(st.sampled_from('ab" ,\n'), min_size=1, max_size=8)
MORE = st.text(st.sampled_from('ab"'), max_size=4)


@given(st.lists(st.tuples(TEXTS, MORE), max_size=6), st.booleans())
def test_what_a_csv_writer_wrote_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], tabs: bool
) -> None:
    path, rows = tmp_path_factory.mktemp("cells") / "table", [*rows, ("end", "")]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t" if tabs else ",", lineterminator="\n").writerows(rows)
    found = [cells for _, cells in read_cells(path, "table", "\t" if tabs else ",")]  # type: ignore[misc]
    assert found == [list(row) for row in rows]


def test_parts_by_number_are_one_table_and_whole_numbers_may_have_a_fraction(tmp_path: Path, read: Read) -> None:
    passages = {"id": ["a"], "text": ["one"]}, {"id": ["b"], "text": ["two"]}
    for number, columns in enumerate(passages):
        pd.DataFrame(columns).to_parquet(tmp_path / f"passages-0000{number}-of-00002.parquet")
    (tmp_path / "queries.csv").write_text("qid,query\nq1,ask\n")
    (tmp_path / "qrels.csv").write_text("query-id,corpus-id,score,split\nq1,a,1.0,test\nq1,b, 2. ,test\n")
    corpus = read(tmp_path)
    assert list(corpus.passages) == ["a", "b"] and corpus.rejected == []
    assert sorted((row.passage_id, relevance) for row, relevance in corpus.qrels) == [("a", 1), ("b", 2)]


def write_parquet(folder: Path, tables: dict[str, dict[str, list[Any]]]) -> Path:
    for name, columns in tables.items():
        path = folder / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(columns).to_parquet(path)
    return folder


def test_parquet_by_the_names_of_beir_in_parts(tmp_path: Path, read: Read) -> None:
    folder = write_parquet(
        tmp_path,
        {
            "corpus/part-0": {"_id": ["p1"], "title": ["One"], "text": ['first, with "quotes"\n\nand a blank line']},
            "corpus/part-1": {"_id": ["2"], "title": [None], "text": ["second"]},
            "queries": {"_id": ["q1", "q2"], "text": ["ask one", "ask two"]},
            "qrels/train-0": {"query-id": ["q1"], "corpus-id": ["p1"], "score": [1.0]},
            "qrels/test-0": {"query-id": ["q2"], "corpus-id": [2], "score": [2]},
            "answers": {"query_id": ["q1", "q2"], "answer": ["a", "b+"], "kind": ["text", "regex"]},
        },
    )
    check(read(folder))


def test_columns_of_other_names(write: Write, read: Read) -> None:
    files = {
        "corpus.tsv": "number\theading\tbody\ttext\np1\tOne\tmine\tother\n",
        "queries.tsv": "q\ttext\n7\task\n",
        "qrels.test.tsv": "q\tpassage_id\n7\tp1\n",
    }
    columns = {"passages.id": "number", "passages.title": "heading", "passages.text": "body"}
    columns |= {"queries.id": "q", "qrels.query": "q"}
    corpus = read(write(files), "tables", columns=columns)
    assert [(p.id, p.title, p.text) for p in corpus.passages.values()] == [("p1", "One", "mine")]
    assert corpus.split_of == {"7": "test"} and corpus.rejected == []


def test_one_file_of_passages(write: Write, read: Read) -> None:
    folder = write({"notes.csv": "id,text\n1,a\n1,b\n2,c,d\n3,\n"})
    corpus = read(folder / "notes.csv")
    assert list(corpus.passages) == ["1"]
    assert [(row.kind, row.id, row.reason, row.where) for row in corpus.rejected] == [
        ("passage", "1", "duplicate id, different text", "notes.csv:3"),
        ("passage", "2", "not as many columns as the first row (2)", "notes.csv:4"),
        ("passage", "3", "empty passage", "notes.csv:5"),
    ]


@pytest.mark.parametrize(
    ("table", "row", "kind", "reason"),
    [
        ("passages", {"passage_id": None, "text": "x"}, "passage", "id is not text"),
        ("passages", {"passage_id": "p", "text": None}, "passage", "text is not text"),
        (
            "passages",
            {"passage_id": "p", "text": "x", "position": -1},
            "passage",
            "position is not a whole number from 0",
        ),
        ("qrels", {"query_id": "q1", "passage_id": "p1", "split": "all"}, "qrel", "split is not train, dev or test"),
        ("qrels", {"query_id": "q1", "passage_id": None, "split": "test"}, "qrel", "passage is not text"),
        (
            "qrels",
            {"query_id": "q1", "passage_id": "p1", "split": "train", "relevance": 0.5},
            "qrel",
            "relevance is not a whole number",
        ),
        ("answers", {"query_id": "q1", "answer": "(", "kind": "regex"}, "answer", "not a regular expression"),
        ("links", {"source": "p1", "target": None}, "link", "target is not text"),
    ],
)
def test_a_bad_row_of_a_table_is_rejected_alone(
    table: str, row: dict[str, Any], kind: str, reason: str, tmp_path: Path, read: Read
) -> None:
    tables = {
        "passages": {"passage_id": ["p1"], "text": ["x"]},
        "queries": {"query_id": ["q1"], "text": ["ask"]},
        "qrels": {"query_id": ["q1"], "passage_id": ["p1"], "relevance": [1], "split": ["validation"]},
    }
    folder = write_parquet(tmp_path / "good", tables)
    good = pd.DataFrame(tables.get(table, {}), dtype=object)
    both = pd.concat([good, pd.DataFrame([row], dtype=object)], ignore_index=True)
    # A Parquet column has one type, so a row with a value of another type goes into a file of its own.
    try:
        both.to_parquet(folder / f"{table}.parquet")
    except Exception:
        (folder / f"{table}.parquet").unlink(missing_ok=True)
        write_parquet(folder, {f"{table}/0": tables[table]})
        write_parquet(folder, {f"{table}/1": {name: [value] for name, value in row.items()}})
    corpus = read(folder)
    found = [(row.kind, row.reason) for row in corpus.rejected]
    assert len(found) == 1 and found[0][0] == kind and found[0][1].startswith(reason)
    assert list(corpus.passages) == ["p1"] and corpus.split_of == {"q1": "dev"}


@pytest.mark.parametrize(
    ("files", "columns", "message"),
    [
        ({"passages.csv": "id,words\n1,a\n"}, {}, r"no column text or .*columns: {passages\.text: <name>}.*id, words"),
        ({"passages.csv": PASSAGES}, {"passages.text": "body"}, "no column body"),
        ({"passages.csv": PASSAGES}, {"passages.words": "text"}, "'passages.words' is not a column"),
        ({"passages.csv": PASSAGES}, {"text": "body"}, "is not a column"),
        ({"passages.csv": PASSAGES}, {"queries.id": "q"}, "has no table queries"),
        ({"passages.csv": PASSAGES, "corpus.csv": PASSAGES}, {}, "keep only one of them"),
        ({"passages.csv": PASSAGES, "passages.tsv": "id\ttext\n"}, {}, "keep only one of them"),
        ({"passages.csv": PASSAGES, "qrels.test.csv": QRELS}, {}, "no table of queries"),
        ({"passages.csv": PASSAGES, "queries.csv": QUERIES, "qrels.csv": "qid,pid\nq1,p1\n"}, {}, "names no split"),
        ({"queries.csv": QUERIES}, {}, "no table of passages"),
        ({"passages.csv": ""}, {}, "is empty"),
        ({"passages.parquet": "no parquet"}, {}, "is damaged"),
        ({"corpus.jsonl": '{"_id": "1", "text": "x"}'}, {"passages.text": "body"}, "columns is for tables"),
    ],
)
def test_tables_that_are_unclear_are_refused(
    files: dict[str, str], columns: dict[str, str], message: str, write: Write, read: Read
) -> None:
    with pytest.raises(InputError, match=message):
        read(write(files), "auto" if "corpus.jsonl" in files else "tables", columns=columns)


TREE = {
    "articles/a.md": "# A\n\nOne [b](b.md) of it stands here.\n\n## Part\n\nTwo of them stand here together.\n",
    "articles/b.md": "# B\n\nThree of those stand there.\n\nFour of these never stood there.\n",
    "queries.jsonl": '{"_id": "q1", "text": "one?"}\n{"_id": "q2", "text": "two?"}\n',
    "qrels/train.tsv": "q1\ta#1\t1\n",
    "qrels/test.tsv": "q2\ta#2\t3\nq2\tb#1\t0\n",
}


def test_a_corpus_read_back_is_the_same(write: Write, tmp_path: Path) -> None:
    keep = IngestSettings(queries="source", dev_fraction=0)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    ingest_source(open_source(str(write(TREE))), keep, first)
    answers = {"query_id": ["q2"], "answer": ["t.o"], "kind": ["regex"], "split": ["test"]}
    pq.write_table(pa.Table.from_pydict(answers, schema=SCHEMAS["answers"]), first / "answers.parquet")
    facts = ingest_source(open_source(str(first)), keep, second)
    for name in SCHEMAS:
        one, two = getattr(Corpus.open(first), name), getattr(Corpus.open(second), name)
        pd.testing.assert_frame_equal(one, two)
    assert (facts["rejected"], facts["left_out"], facts["answers"]["test"]) == ({}, {}, 1)


@pytest.mark.usefixtures("paragraphs_apart")
def test_queries_that_a_corpus_made_are_left_out_when_it_is_read_back(write: Write, tmp_path: Path) -> None:
    pairs = IngestSettings(
        queries="pairs",
        pair_tasks=("ict",),
        pair_queries_per_article=4,
        heldout_dev_articles=0.0,
        heldout_test_articles=0.5,
        pair_sentence_words=1,
        seed=0,
    )
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    made = ingest_source(open_source(str(write(TREE))), pairs, first)
    count = sum(sum(counts.values()) for counts in made["pair_queries"].values())
    facts = ingest_source(open_source(str(first)), IngestSettings(queries="source", dev_fraction=0), second)
    assert count and facts["left_out"] == {
        "query: made of its corpus (ict)": count,
        "qrel: its query is made of its corpus": count,
    }
    assert list(Corpus.open(second).queries["query_id"]) == ["q2"] and facts["rejected"] == {}


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_column_origin_of_ones_own_costs_no_labels(form: str, write: Write, read: Read) -> None:
    rows = [["q1", "how do bats hunt", "support"], ["q2", "what is tea", 3.5], ["q3", "made", "ict"]]
    table = json.dumps([dict(zip(("id", "text", "origin"), row)) for row in rows])
    if form == "csv":
        table = "id,text,origin\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    qrels = "query_id,passage_id\nq1,p1\nq2,2\nq3,2\n"
    corpus = read(write({"passages.csv": PASSAGES, f"queries.{form}": table, "qrels.train.csv": qrels}))
    assert corpus.split_of == {"q1": "train", "q2": "train"} and len(list(corpus.qrels)) == 2
    assert corpus.rejected == []


def test_tables_of_other_things_beside_documents_refuse_nothing(write: Write, read: Read) -> None:
    folder = write({"bats.md": "Bats hunt.\n", "links.csv": "name,url\nx,y\n", "links.json": "[]"})
    assert open_source(str(folder)).format == "article-tree"
    assert [row.text for row in read(folder).passages.values()] == ["Bats hunt."]


def test_a_folder_of_tables_of_other_things_has_no_known_format(write: Write) -> None:
    with pytest.raises(InputError, match="has no known format"):
        open_source(str(write({"links.csv": "name,url\nx,y\n", "links.parquet": ""})))
