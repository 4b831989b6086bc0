"""The benchmark of teachers: its ranks and losses by hand, its page, and that the page is what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def shortlist(right: list[list[int]], known: list[list[int]], scores: list[list[list[float]]]) -> Any:
    from teachers_first_stage import Shortlist

    both = np.array(scores, dtype=np.float32)
    rows = np.tile(np.arange(both.shape[1], dtype=np.int32), (len(both), 1))
    texts = [f"question {number}" for number in range(len(both))]
    return Shortlist(texts, rows, both, both.sum(2), np.array(right, bool), np.array(known, bool))


def test_ranks_and_loss_by_hand() -> None:
    """The second question's best passage is neither right nor wrong, so it is skipped."""
    scores = [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [1.0, 1.0, 0.0]]
    asked = shortlist([[0, 1, 0], [0, 0, 1], [0, 1, 0]], [[1, 1, 1], [0, 1, 1], [1, 1, 1]], [[[0.0]] * 3] * 3)
    assert asked.reciprocal_ranks(np.array(scores)) == pytest.approx([1 / 2, 1 / 2, 1 / 2])
    by_hand = [np.log(1 + np.e + np.exp(-1)), np.log(1 + np.e), np.log(1 + 1 + np.exp(-1))]
    assert asked.loss(np.array(scores)) == pytest.approx(np.mean(by_hand))
    half = asked.every_second()
    assert half.texts == ["question 0", "question 2"] and half.loss(np.array(scores)[::2]) == pytest.approx(
        np.mean([by_hand[0], by_hand[2]])
    )


def test_weights_of_a_fold_do_not_see_its_questions() -> None:
    """The second kind of score is right for the questions of one fold alone, and the first for all others."""
    from teachers_first_stage import FOLDS

    odd = [number % FOLDS == 0 for number in range(20)]
    scores = [[[0.0, 1.0], [1.0, 0.0]] if other else [[1.0, 0.0], [0.0, 1.0]] for other in odd]
    asked = shortlist([[1, 0]] * 20, [[1, 1]] * 20, scores)
    ranks = asked.cross_validated(asked.scores_QKF)
    assert [rank == 0.5 for rank in ranks] == odd


def test_a_page_shows_what_was_measured() -> None:
    import teachers_page

    first = {"passages": 2000, "questions": {"train": 3, "dev": 2, "test": 4}, "weights": [0.5, 20.0], "dev": 0.75}
    first |= {"found": {"dev": 1.0, "test": 0.75}, "train by start": 0.7, "train by retriever_2": 0.9}
    first |= {"dev by start": 0.6, "test by start": 0.5}
    rows = {"first stage": first | {"test": [0.5] * 4}, "control": {"dev": 0.7, "test": [0.5, 0.5, 0.5, 0.25]}}
    rows["plain"] = {"alone dev": 0.25, "alone": [0.2] * 4, "dev": 0.8, "test": [1.0, 0.5, 0.5, 0.5], "seconds": 300}
    lines = teachers_page.page_lines({"scifact-all-2": rows}, {"plain": "as it is", "other": "not run"})
    assert "## SciFact, 3 train questions, seed 2" in lines and not any("not run" in line for line in lines)
    assert any(line.startswith("| as it is | 0.250 | 0.200 | 0.800 | 0.625 | +0.125 |") for line in lines)


def test_a_page_of_students_shows_means_over_seeds_and_the_change_of_retriever_2() -> None:
    """By hand: seeds of 0.5 and 1.0 on two questions, of which retriever 2 answers one."""
    import teachers_students

    before = {"dev": [0.5, 0.5], "test": [1.0, 0.0]}
    seeds = [{"dev": [0.5, 0.7], "test": [0.5, 0.5]}, {"dev": [0.5, 0.7], "test": [1.0, 1.0]}]
    rows = {"retriever 2": before, "no teacher": seeds, "questions": {"train": 5}, "machine": "Machine: any."}
    lines = teachers_students.page_lines({"medquad-all-3": rows})
    assert "## MedQuAD, 5 train questions, seed 3" in lines
    assert "| retriever 2 | 0.500 | 0.500 | | | | | |" in lines
    assert any(line.startswith("| no teacher | 0.600 | 0.750 | 0.500, 1.000 | +0.250 |") for line in lines)


def test_the_page_is_of_the_kept_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import teachers
    from notes import write_page

    found = json.loads((FOLDER / "teachers.measured.json").read_text(encoding="utf-8"))
    (tmp_path / "teachers.notes.md").write_bytes((FOLDER / "teachers.notes.md").read_bytes())
    labels = {name: variant.label for name, variant in teachers.VARIANTS.items()}
    write_page(tmp_path / "teachers.md", teachers.page_lines(found, labels))
    assert (tmp_path / "teachers.md").read_text() == (FOLDER / "teachers.md").read_text()
