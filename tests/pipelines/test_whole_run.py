"""The micro recipe end to end: the same figures in one process, through DVC and through Kubeflow's local runner."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillhouse.graph import USES, find_uses
from stillhouse.surfaces.in_process import run_graph
from stillhouse.surfaces.recipes import configs, find_recipe, load_recipe

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EVALUATION = "artifacts/evaluate/evaluation"


@pytest.fixture(scope="module")
def recipe() -> Path:
    return find_recipe("micro")


@pytest.fixture(scope="module")
def expected(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """metrics.json of the run in this process."""
    folder = tmp_path_factory.mktemp("in_process")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STILLHOUSE_WORK", str(folder / "work"))
        patch.setenv("STILLHOUSE_QUIET", "1")
        patch.chdir(ROOT)
        run_graph(configs(load_recipe(recipe), str(recipe)), folder)
    return json.loads((folder / EVALUATION / "metrics.json").read_text())


def call(folder: Path, *words: str) -> str:
    """Runs a program of this environment in a folder and returns what it printed."""
    programs = Path(sys.executable).parent
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "1", "STILLHOUSE_QUIET": "1"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def repro(folder: Path) -> list[str]:
    """The stages that `dvc repro` ran, but for the one that says each time what code and libraries are here."""
    ran = re.findall("^Running stage '(.*)'", call(folder, "dvc", "repro"), re.MULTILINE)
    return [name for name in ran if name != "environment"]


def change(folder: Path, section: str, values: Mapping[str, Any]) -> None:
    path = folder / "params.yaml"
    content = yaml.safe_load(path.read_text())
    content[section] = content[section] | values
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def descendants(names: Iterable[str]) -> set[str]:
    """The given uses and every use that reads, directly or not, what they write."""
    found = set(names)
    for use in USES:
        if any(source.split("/")[0] in found for source in use.inputs.values()):
            found.add(use.name)
    return found


def test_dvc_runs_what_changed_and_keeps_it(expected: dict[str, Any], tmp_path: Path) -> None:
    call(ROOT, "stillhouse", "new", str(tmp_path / "work"), "--recipe", "micro")
    folder = tmp_path / "work"
    assert set(repro(folder)) == set(find_uses())
    assert json.loads((folder / EVALUATION / "metrics.json").read_text()) == expected
    assert repro(folder) == []

    shown = json.loads(call(folder, "dvc", "metrics", "show", "--json"))[""]["data"]
    assert shown[f"{EVALUATION}/metrics.json"]["data"] == expected
    plots = json.loads(call(folder, "dvc", "plots", "show", "--json"))["data"]
    trainings = {use.name for use in USES if "curves" in use.output_paths()}
    assert set(plots) == trainings
    assert {point["field"] for plot in plots.values() for point in plot[0]["content"]["data"]["values"]} == {
        "train_loss",
        "heldout_loss",
    }
    call(folder, "dvc", "plots", "show")
    graph = call(folder, "dvc", "dag", "--mermaid")
    assert all(f'"{use.name}"' in graph for use in USES)

    for section, values in (("evaluate", {"bootstrap_samples": 101}), ("distilled", {"learning_rate": 2.5e-4})):
        change(folder, section, values)
        assert set(repro(folder)) == descendants([section])
    final = (folder / EVALUATION / "metrics.json").read_bytes()

    call(folder, "dvc", "remote", "add", "-d", "shelf", str(tmp_path / "shelf"))
    call(folder, "dvc", "push")
    call(folder, sys.executable, "-c", "import shutil; shutil.rmtree('artifacts'); shutil.rmtree('.dvc/cache')")
    call(folder, "dvc", "pull")
    assert (folder / EVALUATION / "metrics.json").read_bytes() == final
    assert repro(folder) == []


def test_kubeflow_gives_the_same_figures(expected: dict[str, Any], tmp_path: Path) -> None:
    call(ROOT, "stillhouse", "pipeline", "run-local", "--recipe", "micro", "--folder", str(tmp_path))
    assert json.loads((tmp_path / "evaluation" / "metrics.json").read_text()) == expected
    assert (tmp_path / "evaluation" / "report.html").stat().st_size > 0
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation"], "the workspace is removed"
