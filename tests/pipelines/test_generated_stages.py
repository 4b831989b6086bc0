"""A recipe whose queries come from a chat model: it ingests one source before and after they are generated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chat_server import ChatServer, serving
from kfp import compiler
from stillhouse.kubernetes.pods.task import works_of

from stillhouse import cli
from stillhouse.artifacts import read_manifest
from stillhouse.corpus.store import Corpus
from stillhouse.pipelines.refresh import build_refresh
from stillhouse.pipelines.train import build_pipeline
from stillhouse.releases.refresh.graph import Ladder, before
from stillhouse.releases.refresh.plan import Rung
from stillhouse.workflow.dvc_file import render, stage
from stillhouse.workflow.graph import graph_of, known_uses
from stillhouse.workflow.recipes import configs

PATH = ["passages", "passages_bm25", "generated", "ingest", "validate"]


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with serving() as found:
        yield found


@pytest.fixture
def recipe(server: ChatServer) -> dict[str, Any]:
    return {
        "stages": {
            "passages": {"step": "ingest", "settings_of": "ingest"},
            "passages_bm25": {"step": "bm25", "settings_of": "bm25", "corpus": "passages/corpus"},
            "generated": {"step": "generate-queries", "corpus": "passages/corpus", "bm25": "passages_bm25/bm25"},
            "ingest": {"generated": "generated/queries"},
        },
        "ingest": {"source": "corpus.jsonl", "seed": 7},
        "generated": {"base_url": server.address, "model": "m"},
        "validate": {"min_train_queries": 1},
    }


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_corpus: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    passages = Corpus.open(small_corpus).passages
    for name, first in (("corpus", 0), ("other", 4)):
        rows = zip(passages["passage_id"][first:], passages["text"][first:])
        Path(f"{name}.jsonl").write_text("".join(json.dumps({"id": id, "text": text}) + "\n" for id, text in rows))
    return tmp_path


def test_a_run_makes_the_questions_and_takes_them(recipe: dict[str, Any], server: ChatServer) -> None:
    Path("params.yaml").write_text(yaml.safe_dump(recipe))
    assert cli.main(["run", "--quiet", "--until", "bm25"]) == 0
    assert len(server.requests) == 24
    queries = Corpus.open(Path("artifacts/ingest/corpus")).queries
    assert set(queries["origin"]) == {"generated"} and set(queries["split"]) == {"train", "dev", "test"}
    assert cli.main(["run", "--quiet", "--until", "bm25"]) == 0, "all is up to date"
    # Four passages fewer: the others have their queries already, and no output for the old passages is reused.
    assert cli.main(["run", "--quiet", "--until", "bm25", "--source", "other.jsonl"]) == 0
    assert len(server.requests) == 24
    assert [read_manifest(Path(f"artifacts/{use}/corpus")).facts["passages"] for use in ("passages", "ingest")] == [
        20
    ] * 2


def test_dvc_runs_it_in_order(recipe: dict[str, Any], here: Path) -> None:
    stages = yaml.safe_load(render(recipe, here))["stages"]
    for use in ("passages", "ingest"):
        assert "${ingest.source}" in stages[use]["deps"] and stages[use]["params"] == ["ingest"]
    assert "artifacts/generated/queries" in stages["ingest"]["deps"]
    assert stages["generated"]["outs"][0] == "artifacts/generated/queries"
    assert "--generated artifacts/generated/queries" in stages["ingest"]["cmd"]
    assert not [word for word in stages["generated"]["deps"] if "http" in word], "an address is no file"


def compiled(pipeline: Any) -> dict[str, dict[str, Any]]:
    """The tasks inside the exit handler, by label."""
    compiler.Compiler().compile(pipeline, "pipeline.yaml")
    content = yaml.safe_load(Path("pipeline.yaml").read_text())
    [handler] = [part for name, part in content["components"].items() if name.startswith("comp-exit-handler")]
    return {task["taskInfo"]["name"]: task for task in handler["dag"]["tasks"].values()}


@pytest.mark.parametrize("pipeline", ["train", "refresh"])
def test_a_pipeline_ingests_one_source_twice(pipeline: str, recipe: dict[str, Any]) -> None:
    # An index of passages that are not validated yet, in two shards.
    recipe["stages"]["passages_index"] = {
        "step": "index",
        "corpus": "passages/corpus",
        "retriever": "fetch_model/encoder",
    }
    recipe["stages"]["generated"] |= {"retriever": "fetch_model/encoder", "index": "passages_index/index"}
    tasks = compiled((build_pipeline if pipeline == "train" else build_refresh)(recipe, shards=2))
    prepare = tasks["prepare"]["inputs"]["parameters"]
    assert prepare["source"] == {"componentInputParameter": "pipelinechannel--source"}
    assert tasks["prepare"]["dependentTasks"] == [f"check-{pipeline}"]
    logged = json.loads(prepare["steps"]["runtimeValue"]["constant"])
    assert [use for use in logged if use in PATH] == PATH and "passages_index" in logged
    # As the pod reads them: both have the run's own source, and the later one has the generated queries.
    values = dict.fromkeys(prepare, "") | {"source": "new.jsonl", "queries": "auto", "seed": 7, "model": "m"}
    works = {work.use.name: work for work in works_of(logged, values)}
    assert [works[use].config.source for use in ("passages", "ingest")] == ["new.jsonl"] * 2
    assert works["ingest"].use.inputs == {"generated": "generated/queries"} and not works["passages"].use.inputs
    assert works["generated"].use.inputs["index"] == "passages_index/index"


def test_a_refresh_makes_the_questions_of_the_new_passages(recipe: dict[str, Any]) -> None:
    whole = graph_of(recipe)
    assert [use.name for use in before(whole)] == PATH
    made = {use.name for use in before(whole)}
    for rung in Rung:
        assert not made & {use.name for use in Ladder.of(whole).uses_of(rung)}, "no use stands twice"
    assert [use.name for use in before(graph_of({}))] == ["ingest", "validate"]
    assert configs(recipe, "recipe")["passages"] == configs(recipe, "recipe")["ingest"]


def test_local_queries_beside_a_corpus_in_a_repository_are_watched(tmp_path: Path) -> None:
    (tmp_path / "clicks").mkdir()
    section = {"repo": "https://example.com/corpora.git", "source": "clicks", "train_queries": "clicks"}
    deps = stage(known_uses({})["ingest"], {"ingest": section}, tmp_path)["deps"]
    assert "${ingest.train_queries}" in deps and "${ingest.source}" not in deps
