"""The built-in sample through every stage: what `make reproduce` must reach. `make test-full` runs it."""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stillhouse.graph import find_uses
from stillhouse.steps.spec import named

pytestmark = pytest.mark.sample

COMPARED = find_uses()["evaluate"].inputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    words = [sys.executable, "-m", "stillhouse.cli", "run", "--recipe", "sample", "--folder", str(folder)]
    subprocess.run(words, check=True)
    return folder / "artifacts"


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / "evaluate" / "evaluation" / name).read_text())


def test_distilled_beats_bm25_and_is_not_worse_than_zero_shot(folder: Path) -> None:
    figures, tests = read(folder, "metrics.json"), read(folder, "significance.json")
    assert set(figures) == set(named(COMPARED, "run"))
    assert tests["distilled"]["bm25"]["RR@10"]["low"] > 0
    # Not worse: the interval of the difference reaches to 0 or above.
    assert tests["distilled"]["zero_shot"]["RR@10"]["high"] >= 0
    assert figures["distilled"]["RR@10"] > figures["bm25"]["RR@10"]


@pytest.mark.parametrize("training", named(COMPARED, "curves"))
def test_the_heldout_loss_of_every_training_falls(folder: Path, training: str) -> None:
    with (folder / training / "curves" / "curves.csv").open() as file:
        losses = [float(row["heldout_loss"]) for row in csv.DictReader(file)]
    assert min(losses[1:]) < losses[0]


def test_memory_stays_below_four_gibibytes(folder: Path) -> None:
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < 4 * 2**30
