"""A source with random damage is read, or refused as bad input; it never crashes, and what is taken is sound."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stillhouse.corpus.checks import _integrity, _PassageCounts
from stillhouse.corpus.ingestion import Choices, ingest_source
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError

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
TOKENS = [b"", b"\n", b"\t", b'"', b"'", b",", b"[", b"]", b"{", b"}", b"\\", b"\xff", b"\x00", b"<", b">", b"&#55555;"]
damages = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),  # where
        st.integers(0, 12),  # how many bytes are cut out there
        st.one_of(st.sampled_from(TOKENS), st.binary(max_size=6)),  # what is put there instead
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("name", SOURCES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damage_is_rejected_or_refused(name: str, data: st.DataObject) -> None:
    if name == "html-tree" and importlib.util.find_spec("lxml") is None:
        pytest.skip("lxml is not installed")
    files = SOURCES[name]
    hurt = data.draw(st.sampled_from(sorted(files)))
    content = files[hurt]
    for place, cut, insert in data.draw(damages):
        at = int(place * len(content))
        content = content[:at] + insert + content[at + cut :]
    packed = data.draw(st.booleans()) and name not in ("article-tree", "html-tree", "parquet")
    broken = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as place_of:
        folder, output = Path(place_of) / "source", Path(place_of) / "corpus"
        output.mkdir()
        for file, whole in (files | {hurt: content}).items():
            path = folder / (f"{file}.gz" if packed and file != "split_80_20.json" else file)
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".gz":
                whole = gzip.compress(whole)
                whole = whole[:-9] if broken and file == hurt else whole
            path.write_bytes(whole)
        try:
            format = "tables" if name == "parquet" else name
            ingest_source(open_source(str(folder), format), Choices(max_queries={}, seed=0), output)
        except InputError as error:
            assert str(error)
            return
        corpus = Corpus.open(output)
        assert [check.name for check in _integrity(corpus, _PassageCounts(corpus, 0)) if not check.passed] == []
        assert set(corpus.answers["query_id"]) <= set(corpus.queries["query_id"])
