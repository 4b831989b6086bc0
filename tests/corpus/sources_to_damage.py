"""A small whole source of every format, as files by name: what is damaged to see that readers survive it."""

from __future__ import annotations

import io
import json

import pandas as pd

ARTICLE = {"_id": "a", "title": "A", "sections": [{"heading": "h", "paragraphs": ["x", "y"]}], "links": ["a"]}
QAS = [{"id": "q", "question": "?", "answers": [{"text": "x", "answer_start": 0}]}]
EXAMPLE = {"question": "?", "answers": ["a"], "positive_ctxs": [{"passage_id": "1"}, {"text": "x"}]}


def parquet(columns: dict[str, list[object]]) -> bytes:
    file = io.BytesIO()
    pd.DataFrame(columns).to_parquet(file)
    return file.getvalue()


def lines(*objects: object) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in objects).encode()


LABELS = {
    "queries.jsonl": lines({"_id": "q", "text": "ask"}),
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nq\ta\t1\n",
}
SOURCES: dict[str, dict[str, bytes]] = {
    "beir": {"corpus.jsonl": lines({"_id": "a", "title": "t", "text": "caf\u00e9"}, {"_id": "b", "text": "x"})}
    | LABELS,
    "article-jsonl": {"articles.jsonl": lines(ARTICLE)} | LABELS,
    "article-tree": {"a.md": b"# A\n\nx [a](a.md)\n\n```\ncode\n```\n\ny \xc3\xa9\n", "b.txt": b"text\n"},
    "html-tree": {"a.html": b"<title>t</title><h1>A</h1><p>x <a href='a.html'>y</a><pre>z</pre><!-- c -->\xc3\xa9"},
    "squad": {
        "train.json": json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "c", "qas": QAS}]}]}).encode()
    },
    "dpr": {
        "psgs_w100.tsv": b'id\ttext\ttitle\n1\t"x ""y"""\tt\n2\tx\tt\n',
        "nq-train.json": json.dumps([EXAMPLE, EXAMPLE]).encode(),
        "nq-test.qa.csv": b"who\t['a', 'b']\n",
    },
    "msmarco": {
        "collection.tsv": b"1\tx\n2\ty\n",
        "queries.test.tsv": b"1\task\n",
        "qrels.test.tsv": b"1 0 2 3\n",
        "titles.tsv": b"1\tt\n",
    },
    "reqa": {
        "passages.jsonl": lines({"_id": "p", "title": "t", "text": "x. y."}),
        "candidates.jsonl": lines({"_id": "a", "p": "p", "sentence": "x."}),
        "queries.jsonl": LABELS["queries.jsonl"],
        "qrels.tsv": LABELS["qrels/test.tsv"],
        "split_80_20.json": b'{"train": [], "valid": [], "test": ["q"]}',
    },
    "tables": {
        "passages.csv": b'id,title,text,position\na,t,"x\ny",0\nb,,z,1\n',
        "queries.tsv": b"id\ttext\nq\task\n",
        "qrels.csv": b"query_id,passage_id,score,split\nq,a,1,test\n",
        "answers.csv": b"query_id,answer,kind\nq,a+,regex\n",
    },
    "parquet": {
        "passages.parquet": parquet({"id": ["a", "b"], "text": ["x" * 50, "y"], "position": [0, 1]}),
        "queries.parquet": parquet({"id": ["q"], "text": ["ask"]}),
        "qrels.parquet": parquet({"query_id": ["q"], "passage_id": ["a"], "score": [1], "split": ["test"]}),
    },
}
