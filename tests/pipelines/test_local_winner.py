"""A local run of a pipeline leaves its winner where `stillhouse search` finds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillhouse import cli
from stillhouse.artifacts import read_manifest
from stillhouse.workflow.recipes import find_recipe, load_recipe

LEFT_OUT = ("pretraining", "retriever_1", "retriever_1_unpretrained", "retriever_2", "reranker", "teacher", "distilled")
"""Without them, `micro` chooses between its model without training and BM25."""


@pytest.mark.slow
def test_search_answers_from_the_folder_of_a_local_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = load_recipe(find_recipe("micro")) | {"stages": dict.fromkeys(LEFT_OUT, "none")}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    folder = tmp_path / "trial"
    command = ["pipeline", "run-local", "train", "--recipe", str(tmp_path / "recipe.yaml"), "--folder", str(folder)]
    assert cli.main(command) == 0
    assert not (folder / ".kubeflow").exists()
    evaluated = read_manifest(folder / "evaluation")
    assert evaluated.inputs["corpus"] == read_manifest(folder / "artifacts" / "ingest" / "corpus").digest
    capsys.readouterr()
    monkeypatch.chdir(folder)
    assert cli.main(["search", "--json", "--top=2", "why do ships carry accurate clocks"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [hit["rank"] for hit in answer["hits"]] == [1, 2] and all(hit["text"] for hit in answer["hits"])
