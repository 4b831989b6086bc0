"""The report's section on the teacher, with figures computed by hand from the scores."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from stillhouse.artifacts import whole_folder, write_json, write_manifest
from stillhouse.corpus.store import write_tables
from stillhouse.curves import IGNORED, SKIPPED, TAUGHT, TEACHER
from stillhouse.errors import InputError
from stillhouse.evaluation.report.teachers import read_teacher
from stillhouse.retrieval.fine_tuning.teacher import (
    BM25,
    CHOICE,
    CROSS_ENCODER,
    RETRIEVER,
    Pairs,
    choose_teacher,
    pass_on_choice,
    unmeasured,
    write_choice,
)
from stillhouse.steps.evaluate import STEP, Config
from stillhouse.steps.execute import execute

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
        (curves / "curves.csv").write_text("step,train_loss,heldout_loss\n")
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


def test_the_page_names_the_teacher_and_shows_every_part(tmp_path: Path) -> None:
    shown, made = report(tmp_path, {"distilled": curves_with_teacher(tmp_path, TAUGHT)})
    assert shown.startswith("The teacher The teacher is the weighted sum of BM25 and the retriever. It ranks the cand")
    assert "better than its student, the retriever before distillation: RR@10 0.833 against 0.667" in shown
    assert "of 3 dev queries" in shown and "Distillation learned from it." in shown
    weight = json.loads((tmp_path / "teacher" / CHOICE).read_text())["weights"]["bm25"]
    assert f"BM25 0.667 {weight:.3g} Retriever the student 0.667 {weight:.3g} Weighted sum the teacher 0.833 –" in shown
    found = json.loads((made / "teachers.json").read_text())["distilled"]
    assert found["dev_RR@10"] == pytest.approx({"bm25": 2 / 3, "retriever": 2 / 3, "fused": 5 / 6})
    assert found["ahead"] is True and found["sentence"] in shown
    assert "teachers.json" in (made / "report.html").read_text()


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


def test_a_cross_encoder_alone_is_not_compared(tmp_path: Path) -> None:
    curves = curves_with_teacher(tmp_path, TAUGHT)
    alone = unmeasured(CROSS_ENCODER)
    write_choice(tmp_path / "teacher", alone)
    pass_on_choice(tmp_path / "teacher", curves, TAUGHT)
    found = read_teacher(curves)
    assert found is not None and not found.rows and found.figures()["ahead"] is None
    assert found.sentence.startswith("The teacher is the cross-encoder. It was not measured")
    ranked = json.loads((curves / TEACHER).read_text()) | {"reciprocal_ranks": {"cross_encoder": 0.25}, "queries": 1}
    write_json(curves / TEACHER, ranked)
    found = read_teacher(curves)
    assert found is not None and not found.rows
    assert "ranks the candidates of 1 dev query with RR@10 0.250; its student was not ranked on them" in found.sentence


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        ("bm25+retriever", "the weighted sum of BM25 and the retriever"),
        ("fused", "the weighted sum of BM25, the retriever and the cross-encoder"),
    ],
)
def test_three_parts_have_a_row_for_every_sum(tmp_path: Path, chosen: str, name: str) -> None:
    parts = ["bm25", "retriever", "cross_encoder"][: 2 if "+" in chosen else 3]
    sums = ["bm25+retriever", "bm25+cross_encoder", "cross_encoder+retriever", "fused"]
    ranks = dict(zip(["bm25", "retriever", "cross_encoder", *sums], (0.5, 0.6, 0.1, 0.7, 0.5, 0.6, 0.69)))
    curves = curves_with_teacher(tmp_path, TAUGHT)
    choice = json.loads((curves / TEACHER).read_text())
    choice |= {"chosen": chosen, "weights": dict.fromkeys(parts, 0.25), "reciprocal_ranks": ranks}
    write_json(curves / TEACHER, choice)
    write_manifest(curves, "train-retriever", {}, {}, {})
    shown, made = report(tmp_path, {"distilled": curves})
    assert f"The teacher is {name}." in shown and f"RR@10 {ranks[chosen]:.3f} against 0.600" in shown
    found = read_teacher(curves)
    assert found is not None and {kind: rank for kind, _, rank, _ in found.rows} == ranks
    assert {kind for kind, *_, weight in found.rows if weight is not None} == set(parts)
    [row] = [label for kind, label, *_ in found.rows if kind == chosen]
    assert f"{row} the teacher {ranks[chosen]:.3f} –" in shown and len({row[1] for row in found.rows}) == len(ranks)
    assert json.loads((made / "teachers.json").read_text())["distilled"]["dev_RR@10"] == ranks


def test_two_teachers_have_headings(tmp_path: Path) -> None:
    curves = {"distilled": curves_with_teacher(tmp_path / "a", TAUGHT)}
    curves["distilled_2"] = curves_with_teacher(tmp_path / "b", SKIPPED, student_first=True)
    shown, _ = report(tmp_path, curves)
    assert shown.index("Distilled retriever") < shown.index("0.833 against") < shown.index("Distilled 2")


def test_a_run_without_a_teacher_has_no_such_section(tmp_path: Path) -> None:
    curves = curves_with_teacher(tmp_path, TAUGHT)
    (curves / TEACHER).unlink()
    write_manifest(curves, "train-retriever", {}, {}, {})
    shown, made = report(tmp_path, {"distilled": curves})
    assert not shown and not (made / "teachers.json").exists()
    page = (made / "report.html").read_text()
    assert "The teacher" not in page and "teachers.json" not in page


@pytest.mark.parametrize("text", ["{", "[]", '{"chosen": "bm25"}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / TEACHER).write_text(text)
    with pytest.raises(InputError, match="does not describe a teacher"):
        read_teacher(tmp_path)
