"""The step `ingest` as a user runs it: facts, log, determinism, the built-in sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from beir_source import write_beir

from stillhouse.core.artifacts import read_manifest
from stillhouse.corpus.settings import IngestSettings as Config
from stillhouse.corpus.store import Corpus
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.ingest import STEP


@pytest.fixture(autouse=True)
def loud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")


def write_source(folder: Path, queries: int = 40) -> Path:
    passages = [{"_id": f"p{i}", "title": "T", "text": f"text {i}"} for i in range(queries)]
    half, asked = queries // 2, [f"question {i}" for i in range(queries)]
    write_beir(folder, passages, asked, train=range(half), test=range(half, 2 * half))
    with (folder / "corpus.jsonl").open("a") as file:
        file.write("oops\n")
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_facts_and_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_source(tmp_path / "source")
    report = execute(STEP, Config(source=str(source), max_test_queries=5), {}, {"corpus": tmp_path / "corpus"})
    facts = read_manifest(tmp_path / "corpus").facts
    assert facts.pop("read").keys() == {"source"} and facts == report.facts
    assert facts["format"] == "beir"
    assert (facts["passages"], facts["articles"], facts["links"]) == (40, 40, 0)
    assert facts["queries"] == facts["qrels"] == {"train": 18, "dev": 2, "test": 5}
    assert facts["sampled_out"] == {"train": 0, "dev": 0, "test": 15}
    assert facts["rejected"] == {"line: not JSON": 1}
    log = capsys.readouterr().err
    assert "is read as beir" in log
    assert "rejected 1 × line: not JSON" in log
    assert "40 passages" in log


def test_same_source_same_bytes_wherever_it_lies(tmp_path: Path) -> None:
    outputs = []
    for place in ("one", "two/deeper"):
        source = write_source(tmp_path / place / "source")
        execute(STEP, Config(source=str(source)), {}, {"corpus": tmp_path / place / "corpus"})
        outputs.append(bytes_of(tmp_path / place / "corpus"))
    assert outputs[0] == outputs[1]
    assert not any(str(tmp_path).encode() in content for content in outputs[0].values())


def test_another_source_has_another_digest(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "two"):
        source = write_source(tmp_path / name)
        if name == "two":
            path = source / "queries.jsonl"
            path.write_text(path.read_text() + "\n")
        execute(STEP, Config(source=str(source)), {}, {"corpus": tmp_path / "corpus"})
        digests.append(read_manifest(tmp_path / "corpus").facts["source_digest"])
    assert digests[0] != digests[1]


def test_splits_distractors_and_left_out_rows_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = [
        {"id": "q0", "question": "Who?", "answers": [{"text": "Ann"}]},
        {"id": "q1", "question": "Why?", "answers": [], "is_impossible": True},
    ]
    squad = tmp_path / "dev-v2.0.json"
    paragraph = {"context": "Ann did.", "qas": questions}
    squad.write_text(json.dumps({"data": [{"title": "T", "paragraphs": [paragraph]}]}))
    other = write_source(tmp_path / "other", 6)
    config = Config(
        source=str(squad), splits={"dev": "test"}, distractors=str(other), max_distractors=4, queries="source"
    )
    facts = execute(STEP, config, {}, {"corpus": tmp_path / "corpus"}).facts
    assert (facts["passages"], facts["distractors"]) == (5, 4)
    assert facts["queries"] == facts["qrels"] == facts["answers"] == {"train": 0, "dev": 0, "test": 1}
    assert facts["rejected"] == {"line: not JSON": 1}
    corpus = Corpus.open(tmp_path / "corpus")
    assert corpus.answers.values.tolist() == [["q0", "Ann", "text", "test"]]
    assert list(corpus.rejected["where"]) == ["distractors/corpus.jsonl:7"]
    log = capsys.readouterr().err
    assert "left out 1 × query: unanswerable" in log
    assert "left out 2 × passage: distractor beyond max_distractors" in log
    assert "1 answers, 4 of the passages distractors" in log
