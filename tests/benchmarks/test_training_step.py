"""The training benchmarks, made to run in seconds: both sides have the same loss and report their padding."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def squad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of data sets with a `squad-passages` of 40 questions; benchmarks can be imported."""
    for name in ("datasets", "accelerate"):
        pytest.importorskip(name, reason="sentence-transformers trains with it")
    monkeypatch.syspath_prepend(str(FOLDER))
    data = tmp_path / "squad-passages"
    (data / "qrels").mkdir(parents=True)
    words = [f"{colour} {thing}" for colour in ("red", "green", "blue") for thing in ("bird", "fish", "tree")]
    texts = [f"the {words[n % 9]} sings" + " and swims in the tree" * (n % 7) for n in range(40)]
    rows = [{"_id": f"p{n}", "title": f"{words[n % 9]}", "text": text} for n, text in enumerate(texts)]
    (data / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    asked = [{"_id": f"q{n}", "text": f"where does the {words[n % 9]} grow"} for n in range(40)]
    (data / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)), encoding="utf-8")
    for split, numbers in {"train": range(30), "dev": range(30, 35), "test": range(35, 40)}.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"q{n}\tp{n}\t1" for n in numbers)]
        (data / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_both_sides_train_by_the_same_loss(monkeypatch: pytest.MonkeyPatch, squad: Path, tiny_model: Path) -> None:
    import training_step

    monkeypatch.setattr(training_step, "LENGTHS", (training_step.Lengths(24, False), training_step.Lengths(24, True)))
    page = squad / "page.md"
    arguments = ["--data", str(squad), "--model", str(tiny_model), "--batch", "4", "--rounds", "1", "--steps", "2"]
    assert training_step.main([*arguments, "--page", str(page)]) == 0
    table = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert {tuple(row[:2]) for row in cells} == {
        (pooling, lengths) for pooling in ("cls", "mean") for lengths in ("natural, cut at 24", "all 24 tokens")
    }
    for row in cells:
        assert 0 < float(row[6].rstrip(" %")) < 100
        padding = [float(cell.rstrip(" %")) for cell in row[7:9]]
        assert padding[0] == 0, "none is computed on a CPU"
        assert (padding[1] == 0) == row[1].startswith("all")
        assert float(row[9]) == pytest.approx(float(row[10]), abs=2e-4) and float(row[9]) > 0


@pytest.fixture
def setting(squad: Path, tiny_model: Path) -> Any:
    """The setting of both sides of the suite's trainings: three negatives per query and the tests' encoder."""
    import training_examples
    import training_sides
    from clock import Clock

    training_examples.prepare_examples(squad, squad / "squad-passages", 3)
    lengths = {"query_length": 24, "passage_length": 24}
    training_examples.step("fetch-model", {}, {"encoder": squad / "model"}, model=str(tiny_model), **lengths)
    return training_sides.Setting(squad / "model", "fp32", 2, Clock(torch.device("cpu")), squad)


@pytest.mark.long
def test_both_sides_distil_by_the_same_loss(squad: Path, setting: Any) -> None:
    """The teacher's scores add to the contrastive loss alone."""
    import retriever_sides
    import training_examples

    examples, lengths = training_examples.read_examples(squad, 2, 2, 3), retriever_sides.Lengths(24, False)
    teacher = training_examples.random_teacher(examples)
    ours, theirs = (
        make(setting, examples, lengths, teacher) for make in (retriever_sides.ours, retriever_sides.theirs)
    )
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-4)
    alone = retriever_sides.ours(setting, examples, lengths).loss
    assert ours.loss > retriever_sides.ALPHA * alone + 1e-3
    for side in (ours, theirs):
        assert len(side.run(0)) == 1
    assert 0 < ours.waiting[0] < 1


@pytest.mark.long
@pytest.mark.parametrize("at_once", [True, False])
def test_both_sides_train_a_re_ranker_by_the_same_loss(squad: Path, setting: Any, at_once: bool) -> None:
    import dataclasses

    import reranker_sides
    import training_examples

    reranker_sides.start(setting.model, 48, squad / "reranker")
    setting = dataclasses.replace(setting, model=squad / "reranker")
    examples = training_examples.read_examples(squad, 2, 2, 3)
    ours, theirs = reranker_sides.ours(setting, examples), reranker_sides.theirs(setting, examples, at_once)
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-4)
    assert ours.loss != pytest.approx(np.log(4), rel=1e-6)  # the loss of a model that gives equal scores
    for side in (ours, theirs):
        assert len(side.run(0)) == 1
    assert 0 < ours.waiting[0] < 1 and ours.padding.tokens > 0 and theirs.padding.tokens > 0


def test_waiting_counts_a_method_within_another_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from waiting import Waiting

    class Source:
        def outer(self) -> str:
            time.sleep(0.02)
            return self.inner()

        def inner(self) -> str:
            time.sleep(0.02)
            return "made"

    waiting, source, plain = Waiting(), Source(), Source.inner
    with waiting.of((Source, "outer"), (Source, "inner")):
        assert source.outer() == "made"
    assert 0.04 <= waiting.seconds() < 0.06
    assert Source.inner is plain and source.outer() == "made" and waiting.seconds() < 0.06
