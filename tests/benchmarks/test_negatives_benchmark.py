"""The benchmark of training examples: its questions, its ranks, and rows that are valid settings of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from stillhouse.config import build
from stillhouse.steps.registry import find_step

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def negatives(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    import negatives

    return negatives


def test_other_questions_are_neither_trained_on_nor_chosen_by(negatives: Any, tmp_path: Path) -> None:
    source, data = tmp_path / "cell" / "source" / "qrels", tmp_path / "data" / "scifact" / "qrels"
    source.mkdir(parents=True)
    data.mkdir(parents=True)
    names = {"train": range(10), "dev": range(10, 14), "test": range(50, 53)}
    lines = {split: "".join(f"q{i}\tp{i}\t1\n" for i in numbers) for split, numbers in names.items()}
    for split, text in lines.items():
        (source / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + text)
    everything = "".join(f"q{i}\tp{i}\t1\n" for i in range(30))
    (data / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + everything)
    cell = next(cell for cell in negatives.CELLS if cell.name == "scifact-300-1")

    asked = negatives.questions(cell, tmp_path / "cell", tmp_path / "data")

    assert set(asked["others"]) == {f"q{i}" for i in range(14, 30)}
    assert asked["others"]["q20"] == {"p20": "1"} and set(asked["test"]) == {"q50", "q51", "q52"}


def test_reciprocal_ranks_by_hand(negatives: Any) -> None:
    scores = np.array([[0.9, 0.1, 0.5], [0.9, 0.1, 0.5], [0.2, 0.2, 0.1]])
    assert negatives.reciprocal_ranks(scores, [[2], [1, 0], [2]]) == pytest.approx([1 / 2, 1.0, 1 / 3])
    below = np.arange(20.0)[::-1][None]
    assert negatives.reciprocal_ranks(below, [[9]]) == pytest.approx([0.1])
    assert negatives.reciprocal_ranks(below, [[10]]) == pytest.approx([0.0])


def test_every_row_changes_existing_settings(negatives: Any) -> None:
    steps = {"ingest": {"source": "."}, "mine": negatives.MINE, "train": negatives.TRAIN}
    names = {"train": "train-retriever"}
    trials = yaml.safe_load((FOLDER / "negatives.yaml").read_text(encoding="utf-8"))
    assert trials and all(set(trial) - {"label"} <= set(steps) for trial in trials.values())
    for trial in trials.values():
        for part, settings in steps.items():
            step = find_step(names.get(part, part))
            build(step.config, settings | trial.get(part, {}), step.name)


def test_a_page_is_written_of_what_was_measured(negatives: Any) -> None:
    row = {"others": 0.5, "test": 0.25, "seconds": 12.4, "machine": "Machine: one"}
    trials = {"own": {"label": "its own"}, "not-run": {"label": "not run"}}
    lines = negatives.page_lines({"scifact-300-1": {"own": row}, "medquad-all-1": {"own": row | {"test": 1}}}, trials)
    assert "| its own | 0.500 | 0.250 | 12 |" in lines and not any("not run" in line for line in lines)
    assert "## SciFact, labels: 300, seed 1" in lines
