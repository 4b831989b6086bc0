"""SQuAD JSON and DPR's files: what each row becomes, and what is rejected or left out."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import CleanCorpus
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.json_files import read_elements
from stillhouse.corpus.sources.rows import check_splits, split_in, with_splits

Write, Read = Callable[..., Path], Callable[..., CleanCorpus]


def question(id: Any, text: str = "Who?", *answers: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "question": text, "answers": [{"text": answer, "answer_start": 0} for answer in answers]} | more


def squad(*articles: Any) -> str:
    return json.dumps({"version": "v2.0", "data": list(articles)})


def article(title: Any, *paragraphs: Any) -> dict[str, Any]:
    return {"title": title, "paragraphs": list(paragraphs)}


TRAIN = squad(
    article(
        "Two_words and",
        {
            "context": "First.",
            "qas": [question("q1", "One?", "a", "a", "b"), question("q2", "No?", is_impossible=True)],
        },
        {"context": "Second.", "qas": [question(7, "Two?", "c"), question("q3", "Empty?")]},
    )
)
DEV = squad(article("Two_words and", {"context": "Third.", "qas": [question("q4", "Three?", "d")]}))


@pytest.mark.parametrize("packed", [False, True])
def test_squad(packed: bool, write: Write, read: Read) -> None:
    folder = write({"train-v2.0.json": TRAIN, "dev-v2.0.json": DEV}, packed=packed)
    corpus = read(folder)
    assert [(p.id, p.title, p.text, p.article_id, p.position) for p in corpus.passages.values()] == [
        ("Two_words%20and#1", "Two words and", "First.", "Two_words%20and", 0),
        ("Two_words%20and#2", "Two words and", "Second.", "Two_words%20and", 1),
        ("Two_words%20and#3", "Two words and", "Third.", "Two_words%20and", 2),
    ]
    assert {id: query.text for id, query in corpus.queries.items()} == {"q1": "One?", "7": "Two?", "q4": "Three?"}
    assert corpus.split_of == {"q1": "train", "7": "train", "q4": "dev"}
    assert [(row.query_id, row.passage_id[-2:], relevance) for row, relevance in corpus.qrels] == [
        ("q1", "#1", 1),
        ("7", "#2", 1),
        ("q4", "#3", 1),
    ]
    assert list(corpus.answers) == [("q1", "a", "text"), ("q1", "b", "text"), ("7", "c", "text"), ("q4", "d", "text")]
    assert corpus.rejected == [] and corpus.left_out == {"query: unanswerable": 2}


def test_one_squad_file(write: Write, read: Read) -> None:
    folder = write({"dev.json": DEV})
    assert read(folder / "dev.json").split_of == {"q4": "dev"}
    with pytest.raises(InputError, match="named after its split"):
        read(write({"questions.json": DEV}, folder="other") / "questions.json", "squad")


@pytest.mark.parametrize(
    ("broken", "kind", "reason"),
    [
        (7, "passage", "article: not a JSON object"),
        ({"paragraphs": []}, "passage", "article: no title"),
        ({"title": "x"}, "passage", "article: no paragraphs"),
        (article("x", {"context": "c"}), "passage", "no qas"),
        (article("x", {"context": " ", "qas": []}), "passage", "empty passage"),
        (article("x", {"context": "c", "qas": ["q"]}), "query", "not a JSON object"),
        (article("x", {"context": "c", "qas": [{"question": "?", "answers": []}]}), "query", "no id"),
        (
            article("x", {"context": "c", "qas": [question("z") | {"answers": [{"text": 5}]}]}),
            "query",
            "text is not text",
        ),
        (article("x", {"context": "c", "qas": [question("z", "?", " ")]}), "answer", "empty answer"),
        (
            article("x", {"context": "c", "qas": [question("q1", "Else?", "a")]}),
            "query",
            "duplicate id, different text",
        ),
    ],
)
def test_a_bad_part_of_squad_is_rejected_alone(broken: Any, kind: str, reason: str, write: Write, read: Read) -> None:
    data = json.loads(TRAIN)
    data["data"].append(broken)
    corpus = read(write({"train.json": json.dumps(data)}))
    assert [(row.kind, row.reason) for row in corpus.rejected if row.kind != "qrel"] == [(kind, reason)]
    assert {"q1", "7"} <= corpus.queries.keys()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"data": {}}', '{"data": ' + "[" * 100_000, b'{"data": ["\xff"]}'])
def test_an_invalid_squad_file_is_refused(content: str, write: Write, read: Read) -> None:
    with pytest.raises(InputError, match=r"train\.json"):
        read(write({"train.json": content}), "squad")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-v1.1.json", "train"),
        ("nq-dev.qa.csv", "dev"),
        ("validation", "dev"),
        ("msmarco-doctrain-qrels.tsv", "train"),
        ("contest.json", None),
        ("corpus.tsv", None),
    ],
)
def test_the_split_is_read_from_the_file_name(name: str, split: str | None) -> None:
    assert split_in(name) == split


def test_splits_are_renamed(write: Write) -> None:
    source = open_source(str(write({"train.json": TRAIN, "dev.json": DEV})))
    renamed = with_splits(source, check_splits({"dev": "test"}))
    assert {row.split for row in renamed.rows() if hasattr(row, "split")} == {"train", "test"}
    for wrong in ({"dev": ""}, {"dev": "all"}, {"x": "test"}):
        with pytest.raises(InputError, match="splits: "):
            check_splits(wrong)


PASSAGES = 'id\ttext\ttitle\n1\t"He said ""tea""."\tTea\n2\tSecond text\t"A ""B"""\n3\tThird  text\tC\n'


def context(text: str = "", **more: Any) -> dict[str, Any]:
    return {"title": "t", "text": text} | more


def example(text: str, answers: Any, *positives: Any) -> dict[str, Any]:
    wrong = [context("wrong", passage_id="3")]
    return {
        "dataset": "nq",
        "question": text,
        "answers": answers,
        "positive_ctxs": list(positives),
        "negative_ctxs": wrong,
        "hard_negative_ctxs": wrong,
    }


NQ = [
    example("who said tea", ["tea", "Tea"], context(passage_id="1"), context(psg_id="wiki:2")),
    example("by text", ["x"], context("Third\ntext"), context("nowhere to be found", passage_id=None)),
    example("without positives", ["y"]),
]
DPR = {
    "psgs_w100.tsv": PASSAGES,
    "biencoder-nq-train.json": json.dumps(NQ),
    "nq-train.qa.csv": "who said tea\t['tea']\n",
    "nq-test.qa.csv": 'who drank it\t[\'Ann\', "Bob\'s"]\n"quoted ""q"""\t["c"]\nwho  said tea\t[\'t\']\n',
    "curatedtrec-test.qa.csv": "when\t['19(18|19)', 'a(']\n",
}


@pytest.mark.parametrize("packed", [False, True])
def test_dpr(packed: bool, write: Write, read: Read) -> None:
    corpus = read(write(DPR, packed=packed))
    assert [(p.id, p.title, p.text) for p in corpus.passages.values()] == [
        ("1", "Tea", 'He said "tea".'),
        ("2", 'A "B"', "Second text"),
        ("3", "C", "Third  text"),
    ]
    train = "biencoder-nq-train"
    assert {id: (query.text, corpus.split_of[id]) for id, query in corpus.queries.items()} == {
        f"{train}-1": ("by text", "train"),
        "nq-test.qa-0": ("who drank it", "test"),
        "nq-test.qa-1": ('quoted "q"', "test"),
        "nq-test.qa-2": ("who  said tea", "test"),
        "curatedtrec-test.qa-0": ("when", "test"),
    }
    assert [(row.query_id, row.passage_id) for row, _ in corpus.qrels] == [(f"{train}-1", "3")]
    assert set(corpus.answers) == {
        (f"{train}-1", "x", "text"),
        ("nq-test.qa-0", "Ann", "text"),
        ("nq-test.qa-0", "Bob's", "text"),
        ("nq-test.qa-1", "c", "text"),
        ("nq-test.qa-2", "t", "text"),
        ("curatedtrec-test.qa-0", "19(18|19)", "regex"),
    }
    reasons = {(row.kind, row.id, row.reason) for row in corpus.rejected if row.kind != "answer"}
    same = "the same text is in test"
    assert reasons == {
        ("qrel", f"{train}-1", "no passage has the text of its positive"),
        ("query", f"{train}-0", same),  # leaks are found by text, regardless of white space
        ("qrel", f"{train}-0", f"its query: {same}"),
    }
    assert [row.id for row in corpus.rejected if row.kind == "answer"] == ["curatedtrec-test.qa-0"]
    assert corpus.left_out == {
        "query: answers without a relevant passage, outside test": 1,
        "query: the question stands in a training file of its split too": 1,
    }


UNANSWERED = ("query", "no relevant passage")
FOLLOWING = {"empty answer": [UNANSWERED], "empty query": [("answer", "points to no query")]}
"""What is rejected in addition, because it depends on the rejected part of its row."""


@pytest.mark.parametrize(
    ("file", "line", "kind", "reason"),
    [
        ("psgs_w100.tsv", "4\tonly text\n", "passage", "columns are not id, text, title"),
        ("psgs_w100.tsv", "4\t \tt\n", "passage", "empty passage"),
        ("nq-test.qa.csv", "who\n", "query", "not two columns (question, answers)"),
        ("nq-test.qa.csv", "who\t['a'] * 9\n", "query", "answers are not a list of texts"),
        ("nq-test.qa.csv", "who\t['']\n", "answer", "empty answer"),
        ("nq-test.qa.csv", " \t['a']\n", "query", "empty query"),
    ],
)
def test_a_bad_row_of_dpr_is_rejected_alone(
    file: str, line: str, kind: str, reason: str, write: Write, read: Read
) -> None:
    good = {name: DPR[name] for name in ("psgs_w100.tsv", "nq-test.qa.csv")}
    corpus = read(write(good | {file: good[file] + line}))
    assert [(row.kind, row.reason) for row in corpus.rejected] == [(kind, reason), *FOLLOWING.get(reason, [])]
    assert len(corpus.passages) == 3 and {"nq-test.qa-0", "nq-test.qa-1", "nq-test.qa-2"} <= corpus.queries.keys()


@pytest.mark.parametrize(
    ("broken", "kind", "reason"),
    [
        (5, "query", "not a JSON object"),
        (example("q", "a"), "query", "answers are not a list of texts"),
        (example("q", [], "p"), "qrel", "positive is not a JSON object"),
        (example("q", [], {"title": "t"}), "qrel", "no text"),
        (example("q", [], context(passage_id=1.5)), "qrel", "passage_id is not text"),
        (example("q", [], context(passage_id=99)), "qrel", "points to no passage"),
    ],
)
def test_a_bad_example_of_dpr_is_rejected_alone(broken: Any, kind: str, reason: str, write: Write, read: Read) -> None:
    files = {"psgs_w100.tsv": PASSAGES, "nq-train.json": json.dumps([NQ[0], broken, NQ[0] | {"question": "again"}])}
    corpus = read(write(files))
    following = [UNANSWERED] if kind == "qrel" else []
    assert [(row.kind, row.reason) for row in corpus.rejected] == [(kind, reason), *following]
    assert corpus.queries.keys() == {"nq-train-0", "nq-train-2"}


def test_questions_of_files_that_share_the_beginning_of_their_names(write: Write, read: Read) -> None:
    named = {"first": example("q", [], context(passage_id="1")), "second": example("p", [], context(passage_id="2"))}
    parts = {f"nq-train.{name}.json": json.dumps([one]) for name, one in named.items()}
    corpus = read(write({"psgs_w100.tsv": PASSAGES, **parts}))
    assert {corpus.queries[row.query_id].text: row.passage_id for row, _ in corpus.qrels} == {"q": "1", "p": "2"}


def test_a_dpr_folder_that_is_unclear_is_refused(write: Write, read: Read) -> None:
    with pytest.raises(InputError, match="does not say which split"):
        read(write({"psgs_w100.tsv": PASSAGES, "nq.json": "[]"}, folder="a"))
    with pytest.raises(InputError, match="keep only one of them"):
        read(write({"psgs_w100.tsv": PASSAGES, "psgs_w50.tsv": PASSAGES}, folder="b"))


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("", 0),
        ("{}", 0),
        ("[1, 2", 2),
        ("[1 2]", 1),
        ("[1,]", 1),
        ("[,1]", 0),
        ("[1] 2", 1),
        ('[1, {"a": ', 1),
        ("[1, nope]", 1),
        ("[" * 100_000, 0),
    ],
)
def test_a_damaged_list_is_refused_after_its_good_elements(text: str, before: int, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(text)
    found = []
    with pytest.raises(InputError, match=r"list\.json is damaged"):
        for element in read_elements(path):
            found.append(element)
    assert len(found) == before


def test_an_error_in_a_long_list_is_reported_without_reading_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('["good", "a wrong \\x escape", ' + ", ".join(['"long"'] * (2 << 20)) + "]")
    tracemalloc.start()
    with pytest.raises(InputError, match="escape"):
        list(read_elements(path))
    assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 2
    tracemalloc.stop()
