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
from test_questions_everywhere import STAGES

from stillhouse import cli
from stillhouse.core.artifacts import read_manifest
from stillhouse.corpus.store import Corpus
from stillhouse.kubeflow.pipelines.refresh import build_refresh
from stillhouse.kubeflow.pipelines.train import build_pipeline
from stillhouse.kubeflow.pods.run_parameters import recipe_of_run
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.recipes import configs
from stillhouse.releases.refresh.graph import Levels, before
from stillhouse.releases.refresh.plan import Level

PATH = ["passages", "passages_bm25", "generated", "ingest", "validate"]


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with serving() as found:
        yield found


@pytest.fixture
def recipe(server: ChatServer) -> dict[str, Any]:
    return {
        "stages": STAGES,
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
    assert [read_manifest(Path(f"artifacts/{step}/corpus")).facts["passages"] for step in ("passages", "ingest")] == [
        20
    ] * 2


@pytest.mark.parametrize("build", [build_pipeline, build_refresh])
def test_a_pipeline_makes_the_questions_with_the_corpus(build: Any, recipe: dict[str, Any]) -> None:
    compiler.Compiler().compile(build(recipe), "pipeline.yaml")
    found = configs(recipe_of_run(recipe, "recipe", {"source": "new.jsonl", "queries": "auto"}), "recipe")
    assert [found[name].source for name in ("passages", "ingest")] == ["new.jsonl"] * 2


def test_a_refresh_makes_the_questions_of_the_new_passages(recipe: dict[str, Any]) -> None:
    whole = graph_of(recipe)
    assert [step.name for step in before(whole)] == PATH
    made = {step.name for step in before(whole)}
    for level in Level:
        assert not made & {step.name for step in Levels.of(whole).steps_of(level)}, "no step stands twice"
    assert [step.name for step in before(graph_of({}))] == ["ingest", "validate"]
    assert configs(recipe, "recipe")["passages"] == configs(recipe, "recipe")["ingest"]
