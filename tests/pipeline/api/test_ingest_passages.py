"""A corpus of texts and dicts equals the corpus of the same rows in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import stillhouse

PASSAGES = [
    {
        "id": "p1",
        "title": "Bats",
        "text": "Bats find their prey by listening to echoes.",
        "fields": {"n": 7, "tags": ["x"]},
    },
    {"id": "p2", "title": "Ships", "text": "A clock on a ship gives the longitude."},
    {"id": 3, "text": "A bicycle stays upright while it rolls."},
]
QUESTIONS: list[dict[str, Any]] = [
    {"id": "a", "text": "how do bats hunt", "relevant": ["p1"]},
    {"id": "b", "text": "why carry a clock", "relevant": {"p2": 2, "3": 1}, "split": "test"},
    {"id": "c", "text": "why does it not fall over", "relevant": [3], "split": "dev"},
]


def tables(corpus: stillhouse.StepResult) -> dict[str, list[dict[str, Any]]]:
    return {path.stem: pq.read_table(path).to_pylist() for path in sorted(corpus.folder.glob("*.parquet"))}


def test_dicts_give_the_corpus_of_the_same_beir_files(tmp_path: Path) -> None:
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    with (beir / "corpus.jsonl").open("w") as file:
        for row in PASSAGES:
            line = {"_id": str(row["id"]), "title": row.get("title", ""), "text": row["text"], **row.get("fields", {})}
            file.write(json.dumps(line) + "\n")
    with (beir / "queries.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": row["id"], "text": row["text"]}) + "\n" for row in QUESTIONS)
    header = "query-id\tcorpus-id\tscore\n"
    (beir / "qrels" / "train.tsv").write_text(header + "a\tp1\t1\n")
    (beir / "qrels" / "dev.tsv").write_text(header + "c\t3\t1\n")
    (beir / "qrels" / "test.tsv").write_text(header + "b\tp2\t2\nb\t3\t1\n")
    from_files = stillhouse.ingest(beir, tmp_path / "files", titles="colon", fields=["n", "tags"])
    from_dicts = stillhouse.ingest_passages(PASSAGES, tmp_path / "dicts", questions=QUESTIONS, titles="colon")
    assert tables(from_dicts) == tables(from_files)
    assert len(tables(from_dicts)["qrels"]) == 4 and tables(from_dicts)["fields"][0] == {"n": 7, "tags": ["x"]}
    assert from_dicts.facts["titles"] == "colon"
    assert stillhouse.Corpus.open(from_dicts).passage_count == 3


def test_texts_are_numbered_and_articles_are_in_order(tmp_path: Path) -> None:
    rows = ["first", {"text": "second", "article_id": "x"}, {"text": "third", "article_id": "x"}]
    corpus = stillhouse.ingest_passages(rows, tmp_path, queries="source")
    found = stillhouse.Corpus.open(corpus).passages
    assert found[["passage_id", "article_id", "position"]].to_numpy().tolist() == [
        ["0", "0", 0],
        ["1", "x", 0],
        ["2", "x", 1],
    ]


@pytest.mark.parametrize(
    ("passages", "questions", "message"),
    [
        ([], [], "there are no passages"),
        ("one text", [], "passages must be a list"),
        ([{"text": "a", "titel": "b"}], [], "passage 0: unknown setting 'titel'; did you mean 'title'?"),
        ([{"text": "a", "fields": "b"}], [], "passage 0: fields must be a dict"),
        (["a", {"id": "x"}], [], "passage 1 lacks text"),
        ([{"text": "a", "id": 1.5}], [], "passage 0: id must be text, not 1.5"),
        ([{"text": "a", "position": "first"}], [], "passage 0: position must be a whole number, not 'first'"),
        ([7], [], "passage 0 must map settings to values, not 7"),
        (["a"], [{"text": "q", "relevant": "0"}], "question 0: relevant must be a list of passage ids or a dict"),
        (["a"], [{"text": "q", "relevant": []}], "question 0: relevant is empty"),
        (["a"], [{"text": "q", "relevant": ["0"], "split": "valid"}], "question 0: split is 'valid'; write train, dev"),
        (
            ["a"],
            [{"text": "q", "relevant": {"0": 0.5}}],
            "question 0: a grade must be a whole number of an id, not '0': 0.5",
        ),
    ],
)
def test_wrong_rows_are_reported_in_one_sentence(tmp_path: Path, passages: Any, questions: Any, message: str) -> None:
    with pytest.raises(stillhouse.InputError) as refused:
        stillhouse.ingest_passages(passages, tmp_path / "corpus", questions=questions)
    assert str(refused.value).startswith(message) and "\n" not in str(refused.value)
    assert not (tmp_path / "corpus").exists()
