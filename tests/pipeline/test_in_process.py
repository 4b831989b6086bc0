"""The one-process run executes what changed and what depends on it, and skips the rest."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
from done_again import UNKNOWN, descendants
from quick_steps import quicken_steps

from stillhouse.core.errors import InputError
from stillhouse.pipeline.graph import ARTIFACTS, SIMLM_STEPS
from stillhouse.pipeline.in_process import run_steps
from stillhouse.pipeline.recipes import configs
from stillhouse.pipeline.steps import registry


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quicken_steps(monkeypatch)


def executed(folder: Path, recipe: dict[str, Any]) -> set[str]:
    reports = run_steps(SIMLM_STEPS, configs(recipe, "recipe"), folder / ARTIFACTS)
    assert list(reports) == [step.name for step in SIMLM_STEPS]
    return {name for name, report in reports.items() if report is not None}


@pytest.mark.parametrize(
    ("step", "changed"),
    [
        ("evaluate", {"bootstrap_samples": 300}),
        ("distilled", {"learning_rate": 1e-3}),
        ("mine_1", {"negatives_depth": 3}),
        ("tokenize", {"max_length": 16}),
    ],
)
def test_a_change_runs_what_depends_on_it(step: str, changed: dict[str, Any], tmp_path: Path) -> None:
    assert executed(tmp_path, {}) == {step.name for step in SIMLM_STEPS}
    assert executed(tmp_path, {}) == UNKNOWN
    assert executed(tmp_path, {step: changed}) == descendants(step) | UNKNOWN


def test_damaged_and_missing_outputs_are_made_again(tmp_path: Path) -> None:
    executed(tmp_path, {})
    (tmp_path / "artifacts/mine_2/negatives/data.txt").write_text("other")
    shutil.rmtree(tmp_path / "artifacts/evaluate/evaluation")
    assert executed(tmp_path, {}) == {"mine_2", "evaluate"} | UNKNOWN


@pytest.mark.parametrize("lost", ["the manifest is gone", "a file of others came"])
def test_a_user_s_output_is_neither_removed_nor_replaced(lost: str, tmp_path: Path) -> None:
    executed(tmp_path, {})
    folder = tmp_path / "artifacts/evaluate/evaluation"
    if lost == "the manifest is gone":
        (folder / "manifest.json").unlink()
    else:
        (folder / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError, match=r"no step wrote.*move it away"):
        run_steps(SIMLM_STEPS, configs({}, "recipe"), tmp_path / ARTIFACTS)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    folder.rename(tmp_path / "aside")
    assert executed(tmp_path, {}) == {"evaluate"} | UNKNOWN


def test_a_changed_source_is_read_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.txt").write_text("a text")
    recipe = {"ingest": {"source": str(source)}}
    executed(tmp_path, recipe)
    assert executed(tmp_path, recipe) == UNKNOWN
    (source / "one.txt").write_text("another")
    assert "ingest" in executed(tmp_path, recipe)
    assert executed(tmp_path, recipe) == UNKNOWN


def test_another_version_of_a_step_runs_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executed(tmp_path, {})
    step = registry.steps()["mine"]
    monkeypatch.setitem(registry.steps(), "mine", dataclasses.replace(step, version=step.version + 1))
    assert executed(tmp_path, {}) >= {"mine_1", "mine_2"}
    assert executed(tmp_path, {}) == UNKNOWN
