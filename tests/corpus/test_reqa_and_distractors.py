"""ReQA candidates, its query splits, and passages of another source as distractors."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sources_to_damage import AS_GIVEN

from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import CleanCorpus, clean
from stillhouse.corpus.ingestion import ingest_source
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.distractors import with_distractors
from stillhouse.corpus.store import Corpus, passage_texts

Write, Read = Callable[..., Path], Callable[..., CleanCorpus]


def lines(*objects: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in objects)


REQA = {
    "passages.jsonl": lines(
        {"_id": "p0", "title": "An_oak", "text": "It grows. It falls."}, {"_id": "p1", "text": "One."}
    ),
    "candidates.jsonl": lines(
        {"_id": "c0", "p": "p0", "sentence": "It grows."},
        {"_id": "c1", "p": "p0", "sentence": "It falls."},
        {"_id": "c2", "p": "p1", "sentence": "One."},
    ),
    "queries.jsonl": lines(*({"_id": f"q{i}", "text": f"ask {i}"} for i in range(5))),
    "qrels.tsv": "query-id\tcorpus-id\tscore\nq0\tc0\t1\nq1\tc1\t1\nq2\tc2\t1\nq3\tc2\t1\nq4\tc0\t1\n",
    "split_80_20.json": json.dumps({"train": ["q0", "q1"], "valid": ["q2"], "test": ["q3"]}),
    "split_1_99.json": json.dumps({"train": ["q0"], "valid": [], "test": ["q1", "q2", "q3", "q4"]}),
}
OTHER = {
    "corpus.jsonl": lines(
        {"_id": "c0", "title": "Tea", "text": "Hot drink. Made of leaves. Old."},
        {"_id": "w1", "title": "Twin", "text": "It grows. It falls."},
        {"_id": "w2", "text": " "},
    ),
    "queries.jsonl": lines({"_id": "x", "text": "left"}),
    "qrels/test.tsv": "x\tw1\t1\n",
}


@pytest.mark.parametrize("packed", [False, True])
def test_a_candidate_is_a_sentence_and_its_passage(packed: bool, write: Write, tmp_path: Path) -> None:
    files = {name: content for name, content in REQA.items() if "split" not in name}
    folder = write(files, packed=packed)
    write({name: content for name, content in REQA.items() if "split" in name})
    facts = ingest_source(open_source(str(folder)), AS_GIVEN, tmp_path)
    corpus = Corpus.open(tmp_path)
    assert list(corpus.passages.itertuples(index=False, name=None)) == [
        ("c0", "It grows.", "It grows. It falls.", "p0", "An oak", 0),
        ("c1", "It falls.", "It grows. It falls.", "p0", "An oak", 1),
        ("c2", "One.", "One.", "p1", "", 0),
    ]
    assert passage_texts(corpus)[1] == "It falls. It grows. It falls."
    assert facts["queries"] == {"train": 2, "dev": 1, "test": 1}
    assert facts["left_out"] == {
        "query: in no part of split_80_20.json": 1,
        "qrel: its query is in no part of split_80_20.json": 1,
    }
    assert facts["rejected"] == {}
    with pytest.raises(InputError, match="would leave out the sentence"):
        ingest_source(open_source(str(folder)), replace(AS_GIVEN, titles="left_out"), tmp_path)


def test_divisions_of_the_queries(write: Write, read: Read) -> None:
    folder = write(REQA)
    assert read(folder, reqa_split="1/99").split_of == {
        "q0": "train",
        "q1": "test",
        "q2": "test",
        "q3": "test",
        "q4": "test",
    }
    with pytest.raises(InputError, match=r"no split_5_95\.json; set reqa_split to one that is there \(80/20, 1/99\)"):
        read(folder, reqa_split="5/95")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "must hold the lists"),
        ('{"train": [], "valid": {}, "test": []}', "must hold the lists"),
        ('{"train": ["q0"], "valid": [], "test": ["q0"]}', "query 'q0' in two lists"),
        ("{", "is not JSON"),
    ],
)
def test_a_broken_division_is_refused(content: str, message: str, write: Write, read: Read) -> None:
    with pytest.raises(InputError, match=message):
        read(write(REQA | {"split_80_20.json": content}))


@pytest.mark.parametrize(
    ("file", "row", "reason"),
    [
        ("candidates.jsonl", {"_id": "c9", "p": "nowhere", "sentence": "s"}, "points to no passage"),
        ("candidates.jsonl", {"_id": "c9", "p": "p0"}, "no sentence"),
        ("candidates.jsonl", {"_id": "c9", "p": "p0", "sentence": " "}, "empty sentence"),
        ("candidates.jsonl", {"_id": "c9", "sentence": "s"}, "no p"),
        ("candidates.jsonl", {"_id": "c0", "p": "p0", "sentence": "s"}, "duplicate id, different text"),
        ("passages.jsonl", {"_id": "p0", "text": "again"}, "duplicate id"),
        ("passages.jsonl", {"_id": "p9"}, "no text"),
    ],
)
def test_a_bad_row_of_reqa_is_rejected_alone(
    file: str, row: dict[str, str], reason: str, write: Write, read: Read
) -> None:
    corpus = read(write(REQA | {file: REQA[file] + json.dumps(row)}))
    assert [(row.kind, row.reason) for row in corpus.rejected] == [("passage", reason)]
    assert list(corpus.passages) == ["c0", "c1", "c2"]


def test_distractors_of_candidates_are_candidates(write: Write) -> None:
    folder, other = write(REQA), write(OTHER, folder="other")
    source = with_distractors(open_source(str(folder)), open_source(str(other)), 0, 1, "en")
    corpus = clean(source.rows())
    text = "Hot drink. Made of leaves. Old."
    assert [(p.id, p.title, p.text, p.article_id, p.section) for p in list(corpus.passages.values())[3:]] == [
        (f"distractor:c0:{k}", sentence, text, "distractor:c0", "Tea")
        for k, sentence in enumerate(["Hot drink.", "Made of leaves.", "Old."], start=1)
    ]
    assert corpus.queries.keys() == {"q0", "q1", "q2", "q3"}
    assert corpus.left_out["passage: distractor with the text of a passage of the source"] == 1
    assert [(row.reason, row.where) for row in corpus.rejected] == [("empty passage", "distractors/corpus.jsonl:3")]
    assert {"distractors/corpus.jsonl", "candidates.jsonl"} <= source.files.keys()


def test_distractors_of_passages_are_passages(write: Write, tmp_path: Path) -> None:
    folder, other = write(OTHER), write(REQA, folder="other")
    source = with_distractors(open_source(str(folder)), open_source(str(other)), 1, 1, "en")
    facts = ingest_source(source, AS_GIVEN, tmp_path)
    # Both candidates of p0 have the text of w1, so only the one of p1 is left.
    assert list(Corpus.open(tmp_path).passages["passage_id"]) == ["c0", "w1", "distractor:c2"]
    assert (facts["distractors"], facts["passages"]) == (1, 3)
