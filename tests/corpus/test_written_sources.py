"""Known rows, written in each format by other libraries, are read back unchanged."""

from __future__ import annotations

import csv
import html
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sources_to_damage import row_shown

from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Qrel

SPECIAL = "\"',;\\/#[](){}<>&|*-_=+~`!?:.%$@^0123 \t\n\u00a0\u2028\u00e9\u4e2d\U0001f600"
TEXTS = st.text(st.sampled_from(SPECIAL) | st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
Row = tuple[object, ...]


@dataclass
class Known:
    """Passages as (title, text), queries as (text, number of its passage, grade, answers)."""

    passages: list[tuple[str, str]]
    queries: list[tuple[str, int, int, list[str]]]

    def mapped(self, change: Callable[[str], str]) -> Known:
        """Return a copy with every text changed, for formats that cannot hold some characters."""
        passages = [(change(title), change(text)) for title, text in self.passages]
        return Known(
            passages, [(change(q), p, grade, list(map(change, answers))) for q, p, grade, answers in self.queries]
        )

    def rows(self, passage: str = "p{}", query: str = "q{}", split: str = "test") -> list[Row]:
        """Return the expected rows, where each passage is an article of its own."""
        ids = [passage.format(number) for number in range(len(self.passages))]
        rows: list[Row] = [("passage", id, *both, id, "", 0) for id, both in zip(ids, self.passages)]
        for number, (text, of, grade, answers) in enumerate(self.queries):
            id = query.format(number)
            rows += [("query", id, text), ("qrel", id, ids[of], str(grade), split)]
            rows += [("answer", id, answer, "text", split) for answer in answers]
        return rows


@st.composite
def known(draw: st.DrawFn) -> Known:
    filled = TEXTS.filter(str.strip)
    passages = draw(st.lists(st.tuples(TEXTS, filled), min_size=1, max_size=4))
    number = st.integers(0, len(passages) - 1)
    query = st.tuples(filled, number, st.integers(0, 3), st.lists(TEXTS, min_size=1, max_size=2))
    return Known(passages, draw(st.lists(query, max_size=3)))


def without_breaks(text: str) -> str:
    """Replace tabs and line ends with spaces, for formats with one row per line."""
    return "".join(" " if c in "\t\n\r" else c for c in text)


def json_lines(objects: list[dict[str, object]]) -> bytes:
    return "".join(
        json.dumps(value, ensure_ascii=number % 2 == 0) + "\n" for number, value in enumerate(objects)
    ).encode()


def beir(known: Known) -> tuple[dict[str, bytes], list[Row]]:
    files = {
        "corpus.jsonl": [
            {"_id": f"p{n}", "title": title, "text": text} for n, (title, text) in enumerate(known.passages)
        ],
        "queries.jsonl": [{"_id": f"q{n}", "text": query[0]} for n, query in enumerate(known.queries)],
    }
    qrels = "".join(f"q{n}\tp{of}\t{grade}\n" for n, (_, of, grade, _) in enumerate(known.queries))
    rows = [row for row in known.rows() if row[0] != "answer"]
    whole = {name: json_lines(values) for name, values in files.items() if values}
    return whole | ({"qrels/test.tsv": f"query-id\tcorpus-id\tscore\n{qrels}".encode()} if qrels else {}), rows


def squad(known: Known) -> tuple[dict[str, bytes], list[Row]]:
    articles, rows = [], []
    for number, (_, text) in enumerate(known.passages):
        asked = [(f"q{n}", query) for n, query in enumerate(known.queries) if query[1] == number]
        qas = [{"id": id, "question": q, "answers": [{"text": a} for a in answers]} for id, (q, _, _, answers) in asked]
        articles.append({"title": f"The_{number}", "paragraphs": [{"context": text, "qas": qas}]})
        id = f"The_{number}"
        rows.append(("passage", f"{id}#1", f"The {number}", text, id, "", 0))
        for query, (words, _, _, answers) in asked:
            rows += [("query", query, words), ("qrel", query, f"{id}#1", "1", "dev")]
            rows += [("answer", query, answer, "text", "dev") for answer in answers]
    return {"dev.json": json.dumps({"version": "1.1", "data": articles}, ensure_ascii=False).encode()}, rows


def dpr(known: Known) -> tuple[dict[str, bytes], list[Row]]:
    known = known.mapped(without_breaks)
    examples = [
        {"question": q, "answers": answers, "positive_ctxs": [{"passage_id": f"wiki:p{of}"}]}
        for q, of, _, answers in known.queries
    ]
    # Quoted like the published file: every text, and a title only where it needs quotes.
    quoted = [(text.replace('"', '""'), title) for title, text in known.passages]
    lines = [f'p{n}\t"{text}"\t' + written([[title]], "\t") for n, (text, title) in enumerate(quoted)]
    rows = [
        (*row[:3], "1", row[4]) if row[0] == "qrel" else row for row in known.rows(query="nq-train-{}", split="train")
    ]
    files = {"nq-train.json": json.dumps(examples).encode(), "psgs_w100.tsv": "".join(lines).encode()}
    return files, rows


def msmarco(known: Known) -> tuple[dict[str, bytes], list[Row]]:
    known = known.mapped(without_breaks)
    files = {
        "collection.tsv": "".join(f"p{n}\t{title}\t{text}\n" for n, (title, text) in enumerate(known.passages)),
        "queries.test.tsv": "".join(f"q{n}\t{query[0]}\n" for n, query in enumerate(known.queries)),
        "qrels.test.tsv": "".join(f"q{n} 0 p{of} {grade}\n" for n, (_, of, grade, _) in enumerate(known.queries)),
    }
    rows = [row for row in known.rows() if row[0] != "answer"]
    return {name: content.encode() for name, content in files.items() if content}, rows


def written(rows: list[list[str]], delimiter: str) -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return file.getvalue()


def tables(known: Known) -> dict[str, list[list[str]]]:
    asked = list(enumerate(known.queries))
    return {
        "passages": [["id", "title", "text"], *([f"p{n}", *both] for n, both in enumerate(known.passages))],
        "queries": [["id", "text"], *([f"q{n}", query[0]] for n, query in asked)],
        "qrels": [
            ["qid", "pid", "score", "split"],
            *([f"q{n}", f"p{q[1]}", str(q[2]), "validation"] for n, q in asked),
        ],
        "answers": [["qid", "answer", "split"], *([f"q{n}", answer, "dev"] for n, q in asked for answer in q[3])],
    }


def comma_separated(known: Known) -> tuple[dict[str, bytes], list[Row]]:
    known = known.mapped(lambda text: text.replace("\r", " "))  # a line may end in \r\n, so \r\n is \n in a cell
    files = {f"{name}.csv": written(rows, ",").encode() for name, rows in tables(known).items()}
    return files, known.rows(split="dev")


def tab_separated(known: Known) -> tuple[dict[str, bytes], list[Row]]:
    # A quoted cell cannot contain both a tab and a line end (`stillhouse.corpus.sources.cells`).
    known = known.mapped(lambda text: text.replace("\r", " ").replace("\n", " "))
    files = {f"{name}.tsv": written(rows, "\t").encode() for name, rows in tables(known).items()}
    return files, known.rows(split="dev")


def parquet(known: Known) -> tuple[dict[str, bytes], list[Row]]:
    files = {}
    for name, (header, *rows) in tables(known).items():
        file = io.BytesIO()
        frame = pd.DataFrame(rows, columns=header)
        (frame.astype({"score": float}) if name == "qrels" else frame).to_parquet(file)
        files[f"{name}.parquet"] = file.getvalue()
    return files, known.rows(split="dev")


def json_lists(known: Known) -> tuple[dict[str, bytes], list[Row]]:
    files = {}
    for name, (header, *rows) in tables(known).items():
        files[f"{name}.json"] = json.dumps([dict(zip(header, row)) for row in rows], indent=2).encode()
    return files, known.rows(split="dev")


def evaluator_json(known: Known) -> tuple[dict[str, bytes], list[Row]]:
    asked = dict(enumerate(known.queries))
    content = {
        "queries": {f"q{n}": query[0] for n, query in asked.items()},
        "corpus": {f"p{n}": {"title": title, "text": text} for n, (title, text) in enumerate(known.passages)},
        "relevant_docs": {f"q{n}": {f"p{query[1]}": query[2]} for n, query in asked.items()},
    }
    rows = [row for row in known.rows(split="dev") if row[0] != "answer"]
    return {"val_dataset.json": json.dumps(content).encode()}, rows


def plain(text: str) -> str:
    """Return the text with single spaces and without characters that mean something in Markdown or HTML."""
    return "w" + " ".join("".join(c if c.isalnum() or c in "\"',;:.%$é" else " " for c in text).split())


def markdown(known: Known) -> tuple[dict[str, bytes], list[Row]]:
    known = known.mapped(plain)
    parts, rows = ["# Title #\n"], []
    for number, (title, text) in enumerate(known.passages):
        parts += [f"## {title}\n", text.replace(" ", "\n") if number % 2 else f"{text}\n", ""]
        rows.append(("passage", f"a#{number + 1}", f"Title: {title}" if title else "Title", text, "a", title, number))
    return {"a.md": "\n".join(parts).encode()}, rows


def pages(known: Known) -> tuple[dict[str, bytes], list[Row]]:
    known = known.mapped(lambda text: "w" + " ".join("".join(c if c.isprintable() else " " for c in text).split()))
    parts, rows = ["<!DOCTYPE html><html><body><h1>Title</h1>"], []
    for number, (title, text) in enumerate(known.passages):
        title = title.rstrip("".join("¶§#\uf0c1🔗 "))
        parts.append(f"<h2>{html.escape(title)}</h2>\n<p>{html.escape(text)}</p>")
        rows.append(("passage", f"a#{number + 1}", f"Title: {title}" if title else "Title", text, "a", title, number))
    return {"a.html": "".join(parts).encode()}, rows


FORMATS = {"beir": beir, "squad": squad, "dpr": dpr, "msmarco": msmarco, "csv": comma_separated, "tsv": tab_separated}
FORMATS |= {"parquet": parquet, "json": json_lists, "evaluator-json": evaluator_json}
FORMATS |= {"article-tree": markdown, "html-tree": pages}


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(known=known())
def test_what_was_written_is_read(name: str, known: Known) -> None:
    files, rows = FORMATS[name](known)
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            path = Path(folder) / file
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        format = "tables" if name in ("csv", "tsv", "parquet", "json") else name
        read = open_source(folder, format).rows()
        # Parquet may hold a grade as 1.0.
        found = [
            row_shown(row._replace(relevance=row.relevance.removesuffix(".0")) if isinstance(row, Qrel) else row)
            for row in read
        ]
    kinds = ("passage", "query", "qrel", "answer")
    assert {row[0] for row in found} <= set(kinds), "nothing is rejected"
    for kind in kinds:
        assert [row for row in found if row[0] == kind] == [row for row in rows if row[0] == kind]
