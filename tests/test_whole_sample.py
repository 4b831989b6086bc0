"""What `make reproduce` must reach on the built-in sample with the recipe `labelled`. `make test-full` runs it."""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.artifacts import read_manifest
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.recipes import find_recipe, load_recipe
from stillhouse.pipeline.steps.spec import named

pytestmark = pytest.mark.sample

RECIPE = "labelled"
[COMPARED] = [step.inputs for step in graph_of(load_recipe(find_recipe(RECIPE))) if step.name == "evaluate"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    words = [sys.executable, "-m", "stillhouse.cli", "run", "--recipe", RECIPE, "--folder", str(folder)]
    subprocess.run(words, check=True)
    return folder / "artifacts"


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / "evaluate" / "evaluation" / name).read_text())


def test_later_stages_beat_bm25_and_zero_shot(folder: Path) -> None:
    """`low` is the lower end of the 95 % interval of a difference in RR@10 on the test questions."""
    figures, tests = read(folder, "metrics.json"), read(folder, "significance.json")
    assert set(figures) == set(named(COMPARED, "run"))
    assert tests["distilled"]["bm25"]["RR@10"]["low"] > 0
    assert tests["distilled"]["zero_shot"]["RR@10"]["low"] > 0
    assert tests["best"]["zero_shot"]["RR@10"]["low"] > 0


def test_only_a_teacher_that_is_ahead_changes_the_retriever(folder: Path) -> None:
    ahead = read_manifest(folder / "teacher" / "teacher").facts["ahead"]
    start, trained = (folder / name / "retriever" / "model.safetensors" for name in ("retriever_2", "distilled"))
    assert (start.read_bytes() != trained.read_bytes()) == ahead


@pytest.mark.parametrize("training", named(COMPARED, "curves"))
def test_the_heldout_loss_of_every_training_falls(folder: Path, training: str) -> None:
    with (folder / training / "curves" / "curves.csv").open() as file:
        losses = [float(row["heldout_loss"]) for row in csv.DictReader(file)]
    if not losses[1:]:
        pytest.skip("kept as it was, without a step")
    assert min(losses[1:]) < losses[0]


def test_memory_stays_below_four_gibibytes(folder: Path) -> None:
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < 4 * 2**30
