"""A chat model's questions with `stillhouse run`, `dvc repro` and Kubeflow's local runner: asked once, the same."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_server import asked_about, serving
from every_way import the_same_everywhere
from programs import call

from stillhouse import cli
from stillhouse.core.artifacts import digest_files
from stillhouse.corpus import chat_api
from stillhouse.corpus.store import Corpus
from stillhouse.kubeflow.pipelines.catalog import Request
from stillhouse.kubeflow.pipelines.local import run_pipeline
from stillhouse.pipeline.recipes import find_recipe, load_recipe

pytestmark = [pytest.mark.slow, pytest.mark.long]

STAGES: dict[str, Any] = {
    "passages": {"step": "ingest", "settings_of": "ingest"},
    "passages_bm25": {"step": "bm25", "settings_of": "bm25", "corpus": "passages/corpus"},
    "generated": {"step": "generate-queries", "corpus": "passages/corpus", "bm25": "passages_bm25/bm25"},
    "ingest": {"generated": "generated/queries"},
}
"""The rows of docs/train.md."""
KEY = "a-key-that-the-server-wants"


def test_a_chat_model_is_asked_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way has its own work area, so each asks once about every passage, with the key. A repeat asks nothing."""
    monkeypatch.delenv("STILLHOUSE_WORK", raising=False)
    monkeypatch.setenv(chat_api.KEY, KEY)
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(find_recipe("micro")) | {"stages": STAGES}
    with serving() as server:
        recipe["generated"] = {"base_url": server.address, "model": "m", "max_passages": 20, "round_trip_depth": 3}
        assert "retriever_1" in the_same_everywhere(recipe, tmp_path)
        asked = Counter(asked_about(request) for request in server.requests)
        assert len(asked) == 20 and set(asked.values()) == {3}, "once each way"
        assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
        made = tmp_path / "run" / "artifacts" / "generated" / "queries"
        taken = Corpus.open(tmp_path / "run" / "artifacts" / "ingest" / "corpus").queries
        assert set(Corpus(made).queries["query_id"]) <= set(taken["query_id"]), "the retriever trains on them"

        server.requests.clear()
        before = digest_files(made)
        for repeat in repeats(tmp_path):
            repeat()
            assert not server.requests
        assert digest_files(made) == digest_files(tmp_path / "workspace/artifacts/generated/queries") == before
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def repeats(folder: Path) -> list[Callable[[], object]]:
    """Each way, once more, without the questions that it made."""
    recipe = str(folder / "recipe.yaml")

    def run() -> None:
        shutil.rmtree(folder / "run" / "artifacts" / "generated")
        words = ["--params", recipe, "--folder", str(folder / "run"), "--quiet", "--until", "generated"]
        assert cli.main(["run", *words]) == 0

    def repro() -> None:
        shutil.rmtree(folder / "workspace" / "artifacts" / "generated")
        call(folder / "workspace", "dvc", "repro", "--force", "--single-item", "corpus")

    return [run, repro, lambda: run_pipeline(Request("train", recipe).build(None), {}, folder / "again")]
