# No `from __future__ import annotations` here: kfp reads the types of the signatures as they stand.
"""Whole runs with kfp's local runner: a comparison, many corpora, a corpus that fails, the report at the end."""

import json
from pathlib import Path
from typing import Any

import pytest
from beir_source import write_beir
from kfp import dsl, local
from kfp.dsl.base_component import BaseComponent

from stillhouse.kubeflow.pipelines.catalog import Request
from stillhouse.kubeflow.pipelines.control import check_run
from stillhouse.kubeflow.pipelines.interface import make_pipeline
from stillhouse.kubeflow.pipelines.local import run_local
from stillhouse.kubeflow.pipelines.tasks import Pods, add_stages, as_json
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.graph_steps import stages_of

pytestmark = pytest.mark.slow


def part_of_a_run(names: list[str], recipe: dict[str, Any]) -> BaseComponent:
    """The pipeline of some stages of a recipe, which need no others."""
    stages = [stage for stage in stages_of(graph_of(recipe)) if stage.name in names]

    def body(given: dict[str, Any], pods: Pods) -> None:
        check = check_run("train", as_json(recipe), {}, given, stages)
        add_stages(stages, check, pods, "stillhouse.kubeflow.pods.stage")

    return make_pipeline("part", "A part of a run.", [], None, body)


@pytest.fixture
def recipe(tiny_model: Path) -> dict[str, Any]:
    """The first stages read a part of the sample."""
    return {
        "fetch_model": {"model": str(tiny_model), "query_length": 16, "passage_length": 16},
        "fetch_generator": {"model": "none"},
        "fetch_reranker": {"model": "none"},
        "ingest": {"max_articles": 5},
    }


def test_a_run_that_is_started_again_starts_no_stage_that_an_earlier_one_did(
    recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With kfp's cache, which compares a task's program and arguments. The local one also compares the addresses of
    inputs, so the first task is taken from it here too; on a cluster it always runs.
    """
    monkeypatch.delenv("STILLHOUSE_QUIET", raising=False)
    monkeypatch.setattr(dsl, "PIPELINE_JOB_ID_PLACEHOLDER", "the-same-run")
    monkeypatch.setattr(Pods, "place", lambda self, task, *names, **more: task.set_caching_options(True))

    def ran(name: str) -> list[str]:
        local.init(
            runner=local.SubprocessRunner(use_venv=False),
            pipeline_root=str(tmp_path / name),
            cache_root=str(tmp_path / "cache"),
            enable_caching=True,
        )
        part_of_a_run(["corpus"], recipe)()
        said = "".join(capfd.readouterr())
        return [step for step in ("ingest", "bm25", "importance") if f"[{step}] read " in said]

    assert ran("first") == ["ingest", "bm25", "importance"]
    assert ran("again") == []


@pytest.mark.long
def test_many_corpora_one_of_them_broken(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        words = ("bird", "fish")
        write_beir(
            tmp_path / name, [f"the {word} sings" for word in words], [f"which {word}" for word in words], test=[0, 1]
        )
    (tmp_path / "two" / "corpus.jsonl").write_text("")
    weights = {"method": "weights", "bm25": 1.0, "dense": 0.0, "depth": 5}
    (tmp_path / "hybrid.json").write_text(json.dumps(weights))
    values = {
        "corpora": json.dumps([str(tmp_path / "one"), str(tmp_path / "two")]),
        "retrievers": json.dumps([f"tiny={tiny_model}"]),
        "hybrids": json.dumps([f"tiny={tmp_path}"]),
        "measures": '["RR@5"]',
        "depth": 5,
        "query_length": 16,
        "passage_length": 16,
        "bootstrap_samples": 100,
        "randomisation_samples": 100,
    }
    result = run_local(Request("zero-shot"), values, tmp_path / "out")
    metrics = json.loads((result / "metrics.json").read_text())
    # The weight 0 of the retriever makes the hybrid rank as BM25 does, which finds both words.
    assert metrics["corpora"]["one"]["bm25"] == metrics["corpora"]["one"]["tiny_hybrid"] == {"RR@5": 1.0}
    assert list(metrics["failed"]) == ["two"]
    assert "two" in (result / "zero_shot.html").read_text()
