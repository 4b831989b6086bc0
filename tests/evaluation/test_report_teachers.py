"""The report's section on the teacher, with figures computed by hand from the scores."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.curves import IGNORED, SKIPPED, TAUGHT
from stillhouse.corpus.store import write_tables
from stillhouse.pipeline.steps.evaluate import STEP, Config
from stillhouse.pipeline.steps.execute import execute
from stillhouse.training.teacher import BM25, RETRIEVER, Pairs, choose_teacher, pass_on_choice, write_choice

RETRIEVER_SCORES = [[0.5, 0.6, 0.0], [0.5, 0.0, 0.4], [0.1, 0.5, 0.0]]
BM25_SCORES = [[0.5, 0.0, 0.4], [0.5, 0.6, 0.0], [0.1, 0.5, 0.0]]
"""Scores of three dev queries' candidates, of which the first is right. Each ranks it first for one query and second
for the others, so RR@10 is (1 + 1/2 + 1/2) / 3 = 0.667. Their plain sum also ranks it first for the two queries that
one of them gets wrong: (1 + 1 + 1/2) / 3 = 0.833. Neither can weigh more than the other, because they are symmetric."""


def chosen_pairs(retriever: list[list[float]], bm25: list[list[float]]) -> Pairs:
    query_N = np.repeat(np.arange(len(bm25)), len(bm25[0]))
    positive_N = np.tile([True, False, False], len(bm25))
    scores_NF = np.stack([np.ravel(retriever), np.ravel(bm25)], axis=1).astype(np.float32)
    return Pairs(query_N, positive_N, [RETRIEVER, BM25], scores_NF)


def curves_with_teacher(folder: Path, used: str, student_first: bool = False) -> Path:
    """The curves of a training whose teacher was chosen from the scores above, or among bad ones of BM25."""
    bm25 = [[0.0, 1.0, 1.0]] * 3 if student_first else BM25_SCORES
    with whole_folder(folder / "teacher") as teacher:
        write_choice(teacher, choose_teacher(chosen_pairs(RETRIEVER_SCORES, bm25)))
    with whole_folder(folder / "curves") as curves:
        (curves / "curves.csv").write_text("step,train_loss,heldout_loss,kept\n")
        pass_on_choice(folder / "teacher", curves, used)
        write_manifest(curves, "train-retriever", {}, {}, {})
    return folder / "curves"


def report(folder: Path, curves: dict[str, Path]) -> tuple[str, Path]:
    """The visible text of the report's section on teachers, "" without one, and the folder of the evaluation."""
    passages = {"passage_id": ["p0", "p1"], "title": ["", ""], "text": ["one", "two"], "article_id": ["a", "a"]}
    passages |= {"section": ["", ""], "position": [0, 1]}
    queries = {"query_id": ["q"], "text": ["which?"], "split": ["test"]}
    qrels = {"query_id": ["q"], "passage_id": ["p0"], "relevance": [1], "split": ["test"]}
    with whole_folder(folder / "corpus") as staging:
        write_tables(staging, {"passages": passages, "queries": queries, "qrels": qrels})
        write_manifest(staging, "ingest", {}, {}, {})
    with whole_folder(folder / "run") as staging:
        (staging / "dev.trec").write_text("")
        (staging / "test.trec").write_text("q Q0 p0 1 1 s\n")
        write_manifest(staging, "retrieve", {}, {}, {})
    inputs = {"corpus": folder / "corpus", "run/distilled": folder / "run"}
    inputs |= {f"curves/{name}": place for name, place in curves.items()}
    made = folder / "evaluation"
    execute(STEP, Config(bootstrap_samples=100, randomisation_samples=100), inputs, {"evaluation": made})
    page = (made / "report.html").read_text(encoding="utf-8")
    section = re.search(r'<section id="teacher">.*?</section>', page, re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", section[0])).split()) if section else "", made


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STILLHOUSE_QUIET", "1")
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))


def test_the_page_names_the_teacher(tmp_path: Path) -> None:
    shown, made = report(tmp_path, {"distilled": curves_with_teacher(tmp_path, TAUGHT)})
    assert shown.startswith("The teacher The teacher is the weighted sum of BM25 and the retriever. It ranks the cand")
    assert "better than its student, the retriever before distillation: RR@10 0.833 against 0.667" in shown
    assert "of 3 dev queries" in shown and "Distillation learned from it." in shown
    found = json.loads((made / "teachers.json").read_text())["distilled"]
    assert found["dev_RR@10"] == pytest.approx({"bm25": 2 / 3, "retriever": 2 / 3, "fused": 5 / 6})
    assert found["ahead"] is True and found["sentence"] in shown


@pytest.mark.parametrize(
    ("used", "then"),
    [
        (TAUGHT, "Distillation learned from it, although it is not ahead."),
        (IGNORED, "So the training went on without it."),
        (SKIPPED, "So distillation was skipped, and the retriever was kept as it was."),
    ],
)
def test_the_page_says_what_became_of_a_teacher_that_is_not_ahead(tmp_path: Path, used: str, then: str) -> None:
    shown, made = report(tmp_path, {"distilled": curves_with_teacher(tmp_path, used, student_first=True)})
    assert "no better than its student" in shown and then in shown
    assert json.loads((made / "teachers.json").read_text())["distilled"]["ahead"] is False
