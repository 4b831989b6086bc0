"""A local run of a pipeline leaves its winner where `stillhouse search` finds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillhouse import cli
from stillhouse.core.artifacts import read_manifest
from stillhouse.pipeline.recipes import find_recipe, load_recipe

TRAINING = {"max_steps": 1, "batch_size": 4}


@pytest.mark.slow
@pytest.mark.long
def test_search_answers_from_the_folder_of_a_local_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, micro = load_recipe(find_recipe("unlabelled")), load_recipe(find_recipe("micro"))
    recipe |= {section: micro[section] for section in ("fetch_model", "ingest", "validate", "evaluate")}
    recipe["distilled"] = recipe["distilled"] | TRAINING
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
