"""A small complete source in every format, as file contents by name; tests damage them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd

from stillhouse.core.errors import InputError
from stillhouse.corpus.ingestion import ingest_source
from stillhouse.corpus.settings import IngestSettings
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import LeftOut, Rejected
from stillhouse.corpus.store import Corpus

AS_GIVEN = IngestSettings(queries="source", dev_fraction=0)

ARTICLE = {"_id": "a", "title": "A", "sections": [{"heading": "h", "paragraphs": ["x", "y"]}], "links": ["a"]}
QAS = [{"id": "q", "question": "?", "answers": [{"text": "x", "answer_start": 0}]}]
PARAGRAPHS = [{"context": "c", "qas": QAS}, {"context": "d", "qas": [{"id": 7, "question": "!", "answers": []}]}]
EXAMPLE = {"question": "?", "answers": ["a"], "positive_ctxs": [{"passage_id": "1"}, {"text": "x"}]}


def parquet(columns: dict[str, list[object]]) -> bytes:
    file = io.BytesIO()
    pd.DataFrame(columns).to_parquet(file)
    return file.getvalue()


def lines(*objects: object) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in objects).encode()


LABELS = {
    "queries.jsonl": lines({"_id": "q", "text": "ask"}, {"_id": 7, "text": "Ask"}),
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nq\ta\t1\n7\tb\t2\n7\ta\t0\n",
}
SOURCES: dict[str, dict[str, bytes]] = {
    "beir": {"corpus.jsonl": lines({"_id": "a", "title": "t", "text": "caf\u00e9"}, {"_id": "b", "text": "x"})}
    | LABELS,
    "article-jsonl": {"articles.jsonl": lines(ARTICLE)} | LABELS,
    "article-tree": {
        "a.md": b'# A\n\nx [a](a.md)\n\n```\ncode\n```\n\n## C# ##\ny \xc3\xa9\nz ![b](<c/d e.md> "f")\n\n* * *\n- g\n',
        "b.txt": b"text\n",
        "d.rst": b"==\nT\n==\n\nA\n--\n.. note:: n\n\n   x\n\nu\nv\n-----\n.. c\n",
        "c/d.md": b"[up](../a.md#x) and [away](http://a/b.md)\n~~~\n  code\n\n  more\n",
    },
    "html-tree": {
        "a.html": b"<title>t</title><h1>A</h1><p>x <a href='a.html'>y</a><pre>z</pre><!-- c -->\xc3\xa9",
        "b.html": (
            b'<div>u<nav>menu</nav>v</div><h2 id="h">B &amp; b</h2><ul><li>c</li><li><p>d <b>e</b>f</p></li></ul>'
            b"<table><tr><th>g</th><td>h<br>i</td></tr></table><p hidden>j</p><p>k<span hidden>l</span>m"
        ),
    },
    "squad": {"train.json": json.dumps({"data": [{"title": "t_u v", "paragraphs": PARAGRAPHS}]}).encode()},
    "evaluator-json": {
        "train.json": json.dumps(
            {
                "corpus": {"a": "x", "b": {"title": "t", "text": "y"}},
                "queries": {"q": "?"},
                "relevant_docs": {"q": ["a"]},
            }
        ).encode(),
        "val.json": b'{"queries": {"r": "!"}, "corpus": {"a": "x"}, "relevant_docs": {"r": {"a": 1}}, "mode": "text"}',
    },
    "dpr": {
        "psgs_w100.tsv": b'id\ttext\ttitle\n1\t"x ""y"""\tt\n2\tx\tt\nwiki:3\t"p\nq"\t"u"\n4\ta "b" c\t\n',
        "nq-train.json": json.dumps([EXAMPLE, EXAMPLE]).encode(),
        "nq-test.qa.csv": b"who\t['a', 'b']\n",
    },
    "msmarco": {
        "collection.tsv": b"1\tx\n2\ty\n3\tu\tz\n",
        "queries.test.tsv": b"1\task\n",
        "qrels.test.tsv": b"1 0 2 3\n",
        "titles.tsv": b"1\tt\n",
    },
    "reqa": {
        "passages.jsonl": lines({"_id": "p", "title": "t", "text": "x. y."}),
        "candidates.jsonl": lines({"_id": "a", "p": "p", "sentence": "x."}, {"_id": "b", "p": "p", "sentence": "y."}),
        "queries.jsonl": LABELS["queries.jsonl"],
        "qrels.tsv": LABELS["qrels/test.tsv"],
        "split_80_20.json": b'{"train": [], "valid": [], "test": ["q"]}',
    },
    "tables": {
        "passages.csv": b'id,title,text,position,article_id\na,t,"x\n,""y""",0,A\nb,,z,1.0,B\nc,"",w "v,3,B\n',
        "queries.tsv": b'id\ttext\nq\task\nr\t"a ""b""\tc"\ns\t"d\ne"\nt\t"f\n',
        "links.csv": b"source,target\nA,B\nB,A\n",
        "qrels.csv": b"query_id,passage_id,score,split\nq,a,1,test\nr,b,2.0,val\n",
        "answers.csv": b'query_id;answer;kind\nq;"a;+";regex\n',
        "not_prose.csv": b"passage_id|kind\nb|code\nz|table\n",
    },
    "parquet": {
        "passages.parquet": parquet(
            {"id": ["a", "b", "c"], "text": ["x" * 50, "y", "y"], "title": ["t", None, "u"], "position": [0, 1, 2]}
        ),
        "queries.parquet": parquet({"id": ["q"], "text": ["ask"]}),
        "qrels.parquet": parquet({"query_id": ["q"], "passage_id": ["a"], "score": [1], "split": ["test"]}),
    },
}


def write_files(files: dict[str, bytes], folder: Path) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def check_source(name: str, folder: Path) -> None:
    """Reads `folder / "source"` into a corpus in `folder / "corpus"`, and checks that every row left out is counted."""
    try:
        source = open_source(str(folder / "source"), "tables" if name == "parquet" else name)
        rows = list(source.rows())
        for row in rows:
            row_shown(row)
        (folder / "corpus").mkdir()
        left_out = ingest_source(source, AS_GIVEN, folder / "corpus")["left_out"]
    except InputError as error:
        assert str(error)
        return
    corpus = Corpus.open(folder / "corpus")
    for table, kind in (("passages", "passage"), ("queries", "query"), ("qrels", "qrel")):
        logged = sum(number for reason, number in left_out.items() if reason.startswith(f"{kind}: "))
        present = sum(getattr(row, "kind", type(row).__name__.lower()) == kind for row in rows)
        counted = len(getattr(corpus, table)) + (corpus.rejected["kind"] == kind).sum() + logged
        counted += len(corpus.unjudged) * (kind == "query")
        # A qrel of an article is one for each of its passages.
        assert counted == present or (kind == "qrel" and counted > present), kind


def row_shown(row: Any) -> tuple[Any, ...]:
    """A row as a tuple of its kind and values, without the place that it comes from."""
    if isinstance(row, Rejected):
        assert row.reason and row.where, row
        return ("rejected",)
    values = {name: value for name, value in row._asdict().items() if name not in ("where", "fields")}
    return ("left out",) if isinstance(row, LeftOut) else (type(row).__name__.lower(), *values.values())
