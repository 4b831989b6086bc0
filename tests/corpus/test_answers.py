"""Answers of queries: which are accepted, and how they reach `answers.parquet`."""

from __future__ import annotations

from pathlib import Path

import pytest
from sources_to_damage import AS_GIVEN

from stillhouse.corpus.answers import compile_answer
from stillhouse.corpus.checks import Check, _integrity
from stillhouse.corpus.cleaning import clean
from stillhouse.corpus.ingestion import ingest_source
from stillhouse.corpus.sources.rows import Answer, Passage, Qrel, Query, Row, Source, whole
from stillhouse.corpus.store import Corpus

ROWS: list[Row] = [
    Passage("p", "", "text", "p", "", 0, "f:1"),
    *(Query(id, f"ask {id}", "f:2") for id in ("train", "dev", "test", "only", "none")),
    *(Qrel(split, "p", "1", split, "f:3") for split in ("train", "dev", "test")),
]


def answers(*rows: tuple[str, str, str, str]) -> list[Row]:
    return [Answer(*row, where="f:4") for row in rows]


def test_answers_are_written_split_by_split_without_repeats(tmp_path: Path) -> None:
    given = answers(
        ("test", "Ångström ", "text", "test"),
        ("train", "1|2", "text", ""),
        ("train", "1|2", "regex", ""),
        ("train", "1|2", "text", "train"),
        ("only", "b", "text", "test"),
    )
    facts = ingest_source(Source("rows", {}, whole(lambda: ROWS + given)), AS_GIVEN, tmp_path)
    corpus = Corpus.open(tmp_path)
    assert list(corpus.answers.itertuples(index=False, name=None)) == [
        ("train", "1|2", "text", "train"),
        ("train", "1|2", "regex", "train"),
        ("test", "Ångström ", "text", "test"),
        ("only", "b", "text", "test"),
    ]
    assert list(corpus.answers_of("test")["answer"]) == ["Ångström ", "b"]
    assert facts["answers"] == {"train": 2, "dev": 0, "test": 2}
    assert list(corpus.queries_of("test")["query_id"]) == ["test", "only"]
    assert facts["rejected"] == {} and list(corpus.unjudged["query_id"]) == ["none"] and facts["unjudged"] == 1
    assert all(map(Check.passed.fget, _integrity(corpus)))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("nobody", "a", "text", "test"), "points to no query"),
        (("train", " \n", "text", ""), "empty answer"),
        (("train", "", "regex", ""), "empty answer"),
        (("train", "a(b", "regex", ""), "not a regular expression (missing ) at position 3)"),
        (("train", "[à-ÿ]lan", "regex", ""), "not a regular expression (bad character range at position 5)"),
        (("train", "a", "glob", ""), "kind is not text or regex"),
        (("train", "a\ud800", "text", ""), "not valid Unicode"),
    ],
)
def test_a_bad_answer_is_rejected_with_its_reason(row: tuple[str, str, str, str], reason: str) -> None:
    corpus = clean(ROWS + answers(("train", "kept", "text", ""), row))
    assert list(corpus.answers) == [("train", "kept", "text")]
    found = [rejected for rejected in corpus.rejected if rejected.kind == "answer"]
    assert [(rejected.id, rejected.reason) for rejected in found] == [(row[0], reason)]


@pytest.mark.parametrize("split", ["", "train", "dev", "test"])
def test_queries_with_only_answers_are_taken_in_the_test_split_only(split: str) -> None:
    corpus = clean(ROWS + answers(("none", "a", "text", split), ("only", "b", "text", "test")))
    taken = split == "test"
    assert ("none" in corpus.queries) == taken == (("none", "a", "text") in corpus.answers)
    assert corpus.rejected == []
    assert corpus.left_out == ({} if taken else {"query: answers without a relevant passage, outside test": 1})


def test_regular_expressions_ignore_case_and_match_line_by_line() -> None:
    assert compile_answer("^straße 1$").search("a\nSTRASSE 1\nSTRAßE 1")
    assert not compile_answer("b").search("a")
    with pytest.raises(ValueError, match="not a regular expression"):
        compile_answer("[")
