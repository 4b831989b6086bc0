"""The micro recipe end to end through DVC: the figures of a run in one process, and only what changed runs again."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from programs import EVALUATION, ROOT, call

from stillhouse.workflow.graph import USES, find_uses

pytestmark = pytest.mark.slow


def repro(folder: Path) -> list[str]:
    """The stages that `dvc repro` ran, but for the one that says each time what code and libraries are here.

    Each has said which step of the run it is, the last of them that it is the last; bars leave no trace in a log.
    """
    said = call(folder, "dvc", "repro", STILLHOUSE_QUIET="")
    ran = [name for name in re.findall("^Running stage '(.*)'", said, re.MULTILINE) if name != "environment"]
    places = re.findall(r"^step (\d+) of (\d+): (\w+) ", said, re.MULTILINE)
    first = len(USES) - len(ran) + 1
    assert places == [(str(number), str(len(USES)), name) for number, name in enumerate(ran, start=first)]
    assert "\r" not in said and "\x1b" not in said
    return ran


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
