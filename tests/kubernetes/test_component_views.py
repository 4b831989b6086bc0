"""What Kubeflow shows for a step: ROC curves, HTML pages and tables of metrics."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from stillhouse.kubernetes.pods.component_views import CURVE_POINTS, roc, views_of, write_view
from stillhouse.retrieval.fine_tuning.teacher import Teacher
from stillhouse.steps.spec import Report


@dataclass
class Artifact:
    path: str
    curve: list[Any] = field(default_factory=list)

    def log_roc_curve(self, fpr: list[float], tpr: list[float], threshold: list[float]) -> None:
        self.curve += [fpr, tpr, threshold]


def written(step: str, name: str, outputs: dict[str, Path], report: Report, folder: Path) -> tuple[str, Artifact]:
    [view] = [view for view in views_of(step) if view.name == name]
    artifact = Artifact(str(folder / "artifact" / name))
    write_view(view, outputs, report, artifact)
    return Path(artifact.path).read_text(encoding="utf-8"), artifact


CURVES = {
    "apart": ([3.0, 4.0], [1.0, 2.0]),
    "mixed": ([3.0, 2.0], [1.0, 2.5]),
    "equal": ([1.0, 1.0], [1.0]),
    "many": (list(np.random.default_rng(1).normal(1, 1, 400)), list(np.random.default_rng(2).normal(0, 1, 900))),
}


@pytest.mark.parametrize("case", CURVES)
def test_the_curve_is_the_shares_at_each_threshold(case: str) -> None:
    positives, negatives = (np.array(scores) for scores in CURVES[case])
    false, true, thresholds = roc(positives, negatives)
    for rate_false, rate_true, threshold in zip(false, true, thresholds):
        assert rate_true == pytest.approx((positives >= threshold).mean())
        assert rate_false == pytest.approx((negatives >= threshold).mean())
    assert (false[0], true[0]) == (0, 0) and (false[-1], true[-1]) == (1, 1)
    assert len(false) <= CURVE_POINTS and thresholds == sorted(thresholds, reverse=True)
    assert json.loads(json.dumps(thresholds, allow_nan=False)) == thresholds


def test_the_curve_of_a_teacher_leaves_out_what_was_not_scored(tmp_path: Path) -> None:
    queries = pd.DataFrame({"query_id": ["a", "b"], "split": ["train", "dev"]})
    positives = pd.DataFrame({"query_id": ["a", "b"], "row": [0, 1], "score": [2.0, 0.5]})
    scores = np.array([[1.0, np.nan], [0.0, 3.0]], dtype=np.float32)
    Teacher(queries, scores, positives).write(tmp_path)
    _, artifact = written("score-pairs", "roc", {"teacher": tmp_path}, Report("done"), tmp_path)
    expected = roc(np.array([2.0, 0.5]), np.array([1.0, 0.0, 3.0]))
    assert artifact.curve == [list(part) for part in expected]


def test_curves_become_a_page(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("step,train_loss,heldout_loss\n0,3,3\n5,2,1.5\n10,1,1.8\n")
    text, _ = written("pretrain", "html", {"curves": tmp_path}, Report("10 steps <3 s"), tmp_path)
    assert "<svg" in text and "10 steps &lt;3 s" in text and "http" not in text.replace("http://www.w3.org", "")


def test_a_training_without_steps_has_a_page_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("step,train_loss,heldout_loss\n")
    text, _ = written("train-reranker", "html", {"curves": tmp_path}, Report("no step"), tmp_path)
    assert "Nothing was trained" in text


def test_figures_become_a_table(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(json.dumps({"bm25": {"RR@10": 0.25}, "distilled": {"RR@10": 0.5}}))
    (tmp_path / "intervals.json").write_text(json.dumps({"distilled": {"RR@10": [0.4, 0.6]}}))
    report = Report("done", facts={"labels": "pairs", "test_queries": 7})
    text, _ = written("evaluate", "summary", {"evaluation": tmp_path}, report, tmp_path)
    assert "| bm25 | 0.250 |" in text and "| distilled | 0.500 (0.400 to 0.600) |" in text
    assert "7 **synthetic** test queries" in text


def test_a_step_without_a_page_shows_its_summary(tmp_path: Path) -> None:
    text, _ = written("importance", "html", {"importance": tmp_path}, Report("no passage has two tokens"), tmp_path)
    assert "no passage has two tokens" in text
