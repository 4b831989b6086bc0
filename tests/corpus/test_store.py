"""The Parquet tables: texts come back unchanged, and positives equal those of a slow look-up."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.core.errors import InputError
from stillhouse.corpus.ingestion import ingest_source
from stillhouse.corpus.schemas import SCHEMAS
from stillhouse.corpus.settings import IngestSettings
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.store import Corpus, passage_texts, write_tables
from stillhouse.corpus.titles import passage_text

ALL = IngestSettings(queries="source", dev_fraction=0)

TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
letters = st.characters(exclude_categories=("Cc", "Cs", "Z"), exclude_characters=TURNING)
ids = st.text(letters, min_size=1)
texts = st.text().filter(lambda text: text.strip())
passages = st.dictionaries(ids, st.tuples(st.text(), texts), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(passages=passages, queries=st.dictionaries(ids, texts, max_size=5), escaped=st.booleans(), data=st.data())
def test_any_text_survives(
    passages: dict[str, tuple[str, str]], queries: dict[str, str], escaped: bool, data: st.DataObject
) -> None:
    gold = {id: data.draw(st.sampled_from(sorted(passages))) for id in queries}
    with tempfile.TemporaryDirectory() as name:
        source, folder = Path(name) / "source", Path(name) / "corpus"
        (source / "qrels").mkdir(parents=True)
        folder.mkdir()

        def write(file: str, objects: list[dict[str, str]]) -> None:
            lines = [json.dumps(value, ensure_ascii=escaped) + "\n" for value in objects]
            (source / file).write_bytes("".join(lines).encode())

        write("corpus.jsonl", [{"_id": id, "title": title, "text": text} for id, (title, text) in passages.items()])
        if queries:
            write("queries.jsonl", [{"_id": id, "text": text} for id, text in queries.items()])
            rows = "".join(f"{query}\t{passage}\t1\n" for query, passage in gold.items())
            (source / "qrels" / "test.tsv").write_bytes(("query-id\tcorpus-id\tscore\n" + rows).encode())
        ingest_source(open_source(str(source)), ALL, folder)
        corpus = Corpus.open(folder)
        assert corpus.rejected.empty
        found = corpus.passages[["passage_id", "title", "text"]].itertuples(index=False, name=None)
        assert list(found) == [(id, title, text) for id, (title, text) in passages.items()]
        assert dict(zip(corpus.queries["query_id"], corpus.queries["text"])) == queries
        assert dict(zip(corpus.qrels["query_id"], corpus.qrels["passage_id"])) == gold


def write_small(folder: Path) -> Corpus:
    write_tables(
        folder,
        {
            "passages": {
                "passage_id": ["a", "b", "c"],
                "title": ["", "T", "U"],
                "text": ["x", "y\n", "z"],
                "article_id": ["a", "b", "c"],
                "section": ["", "", ""],
                "position": [0, 0, 0],
            },
            "queries": {"query_id": ["a", "q", "r"], "text": ["1", "2", "3"], "split": ["train", "test", "test"]},
            "qrels": {
                "query_id": ["q", "q", "a", "r", "q"],
                "passage_id": ["c", "a", "b", "c", "b"],
                "relevance": [1, 2, 1, 1, 0],
                "split": ["test", "test", "train", "test", "test"],
            },
        },
    )
    return Corpus.open(folder)


@pytest.mark.parametrize("asked", [["q", "nobody", "a"], ["r"], [], ["a", "q", "r"]])
def test_positives_equal_a_slow_look_up(asked: list[str], tmp_path: Path) -> None:
    corpus = write_small(tmp_path)
    offsets, rows = corpus.positives(asked)
    assert (offsets.dtype, rows.dtype) == ("int64", "int32")
    order = list(corpus.passages["passage_id"])
    for i, query in enumerate(asked):
        slow = [order.index(q.passage_id) for q in corpus.qrels.itertuples() if q.query_id == query and q.relevance > 0]
        assert rows[offsets[i] : offsets[i + 1]].tolist() == sorted(slow)
    assert offsets[-1] == len(rows)


def test_views_of_a_split(tmp_path: Path) -> None:
    corpus = write_small(tmp_path)
    assert list(corpus.queries_of("test")["query_id"]) == ["q", "r"]
    assert list(corpus.qrels_of("test")["relevance"]) == [1, 2, 1, 0]
    assert list(corpus.relevant("test")["passage_id"]) == ["c", "a", "c"]
    assert corpus.queries_of("dev").empty
    assert (
        passage_texts(corpus)
        == ["x", "T y\n", "U z"]
        == [passage_text(row.title, row.text) for row in corpus.passages.itertuples()]
    )
    assert corpus.passage_ids.find(["b", "zz"]).tolist() == [1, -1]
    assert corpus.rows_of(["c", "a", "c"]).tolist() == [2, 0, 2]
    with pytest.raises(InputError, match="no passage 'zz'"):
        corpus.rows_of(["a", "zz"])


def test_files_have_the_documented_columns(tmp_path: Path) -> None:
    write_small(tmp_path)
    for name, schema in SCHEMAS.items():
        assert pq.read_schema(tmp_path / f"{name}.parquet").equals(schema)


def test_a_folder_that_is_not_a_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"lacks passages\.parquet"):
        Corpus.open(tmp_path)
    write_small(tmp_path)
    (tmp_path / "queries.parquet").write_bytes((tmp_path / "qrels.parquet").read_bytes())
    with pytest.raises(InputError, match=r"queries\.parquet has columns"):
        _ = Corpus.open(tmp_path).queries
    (tmp_path / "queries.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(InputError, match=r"queries\.parquet is damaged"):
        _ = Corpus.open(tmp_path).queries
