"""Whole runs through kfp's local runner: fan-out over shards and corpora, the gate, the report at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kfp.dsl.base_component import BaseComponent

from pipelines.catalog import Request
from pipelines.interface import make_pipeline
from pipelines.local import run_local, run_pipeline
from pipelines.tasks import Pods, make_task
from stillhouse.config import build, field_types
from stillhouse.graph import find_uses, needed

pytestmark = pytest.mark.slow


def part_of_a_run(targets: list[str], settings: dict[str, dict[str, Any]], shards: int) -> BaseComponent:
    """The pipeline of some uses of the graph and of what they need."""
    uses = needed(find_uses().values(), targets)

    def body(given: dict[str, Any], pods: Pods) -> None:
        tasks: dict[str, Any] = {}
        for use in uses:
            config: Any = build(use.step.config, settings.get(use.name, {}), use.name)
            values = {field: getattr(config, field) for field in field_types(use.step.config)}
            tasks[use.name] = make_task(use, values, tasks, pods)

    return make_pipeline("part", "A part of a run.", [], None, body, shards)


def outputs_of(workspace: Path) -> Callable[[str], Path]:
    [run] = (workspace / "outputs").iterdir()
    return lambda name: run / name


@pytest.fixture
def settings(tiny_model: Path) -> dict[str, dict[str, Any]]:
    lengths = {"query_length": 16, "passage_length": 16}
    return {
        "fetch_model": {"model": str(tiny_model)} | lengths,
        "ingest": {"max_articles": 5},
        "zero_shot_index": {"cache_gib": 0.0},
        "validate": {},
    }


@pytest.mark.long
def test_shards_are_encoded_apart_and_indexed_together(settings: dict[str, Any], tmp_path: Path) -> None:
    run_pipeline(part_of_a_run(["zero_shot_index"], settings, 3), {}, tmp_path)
    output = outputs_of(tmp_path)
    shards = sorted(path.name for path in output("gather-vectors/vectors").iterdir())
    assert shards == ["shard-0001", "shard-0002", "shard-0003"]
    index = output("index/index")
    assert json.loads((output("index/metrics")).read_text())["encoded"] == 0, "nothing is encoded twice"
    alone = tmp_path / "alone"
    run_pipeline(part_of_a_run(["zero_shot_index"], settings, 1), {}, alone)
    assert (outputs_of(alone)("index/index") / "index.faiss").read_bytes() == (index / "index.faiss").read_bytes()
    assert "part: succeeded" in (output("report-end/summary")).read_text()


def test_a_corpus_that_does_not_pass_stops_at_the_gate(settings: dict[str, Any], tmp_path: Path) -> None:
    settings["validate"] = {"min_passages": 1_000_000}
    run_pipeline(part_of_a_run(["lexical"], settings, 1), {}, tmp_path)
    output = outputs_of(tmp_path)
    page = output("validate/html").read_text()
    assert "the number of passages is 29 and must be at least" in page, "the page is there although the run failed"
    assert not output("lexical").exists() or not list(output("lexical").glob("run/*"))
    assert "part: failed" in (output("report-end/summary")).read_text()


def test_many_corpora_one_of_them_broken(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "qrels").mkdir(parents=True)
        rows = [{"_id": f"p{i}", "title": "", "text": f"the {word} sings"} for i, word in enumerate(("bird", "fish"))]
        queries = [{"_id": f"q{i}", "text": f"which {word}"} for i, word in enumerate(("bird", "fish"))]
        for file, content in (("corpus", rows), ("queries", queries)):
            (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
        (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tp0\t1\nq1\tp1\t1\n")
    (tmp_path / "two" / "corpus.jsonl").write_text("")
    values = {
        "corpora": json.dumps([str(tmp_path / "one"), str(tmp_path / "two")]),
        "retrievers": json.dumps([f"tiny={tiny_model}"]),
        "measures": "RR@5",
        "depth": 5,
        "query_length": 16,
        "passage_length": 16,
        "bootstrap_samples": 100,
        "randomisation_samples": 100,
    }
    result = run_local(Request("zero-shot"), values, tmp_path / "out")
    metrics = json.loads((result / "metrics.json").read_text())
    assert metrics["corpora"]["one"]["bm25"] == {"RR@5": 1.0} and list(metrics["failed"]) == ["two"]
    assert "two" in (result / "zero_shot.html").read_text()
