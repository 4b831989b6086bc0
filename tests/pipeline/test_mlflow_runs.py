"""A run in MLflow: MLflow's own client finds one parent, a child for each stage, their figures and the report."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from stillhouse.core.report import Report
from stillhouse.pipeline.graph_steps import GraphStep
from stillhouse.pipeline.mlflow_runs import logged

mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")


@dataclass(frozen=True)
class Config:
    depth: int = 200
    source: str = "corpus.jsonl"


INDEX, BM25, EVALUATE = (
    GraphStep("index", "index", stage="corpus"),
    GraphStep("bm25", "bm25", stage="corpus"),
    GraphStep("evaluate", "evaluate", stage="evaluation"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "ships")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    mlflow.set_experiment("own")
    (tmp_path / "evaluate/evaluation").mkdir(parents=True)
    (tmp_path / "evaluate/evaluation/report.html").write_text("<p>the winner</p>")
    return tmp_path


@pytest.mark.parametrize("within", [False, True], ids=["", "in a notebook's run"])
def test_a_parent_has_a_child_for_each_stage(within: bool, folder: Path) -> None:
    with mlflow.start_run(run_name="own") if within else nullcontext():
        log = logged("run", "a")
        log(INDEX, Config(), Report("done", {"bytes": 12.0}), folder)
        log(BM25, Config(depth=50), Report("done"), folder)
        # Another process, as under `dvc repro` and in pods, joins the same parent.
        logged("run", "a")(EVALUATE, Config(), Report("done", {"best/RR@10": 0.7}, html="report.html"), folder)

    runs = mlflow.search_runs(search_all_experiments=True, output_format="list")
    runs = [run for run in runs if run.info.run_name != "own"]
    [parent] = [run for run in runs if run.info.run_name == "run"]
    stages = {run.info.run_name: run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id}
    assert stages.keys() == {"corpus", "evaluation"} and len(runs) == 3
    assert stages["corpus"].data.metrics == {"index.bytes": 12.0}
    assert stages["corpus"].data.params["index.depth"] == "200" and stages["corpus"].data.params["bm25.depth"] == "50"
    assert parent.data.metrics == {"best/RR_at_10": 0.7}
    page = mlflow.artifacts.load_text(f"{parent.info.artifact_uri}/evaluate/report.html")
    assert page == "<p>the winner</p>" and {run.info.status for run in runs} == {"FINISHED"}


def test_other_settings_are_another_run(folder: Path) -> None:
    for digest in ("a", "b", "a"):
        logged("run", digest)(INDEX, Config(), Report("done"), folder)
    runs = mlflow.search_runs(search_all_experiments=True, output_format="list")
    assert sum("mlflow.parentRunId" not in run.data.tags for run in runs) == 2


def test_a_server_that_is_away_does_not_end_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    mlflow.set_tracking_uri("http://127.0.0.1:9")
    logged("run", "a")(INDEX, Config(), Report("done"), folder)
    assert "is not logged" in "".join(capsys.readouterr())
