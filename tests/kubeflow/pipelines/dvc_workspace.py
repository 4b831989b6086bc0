"""What a user does in a folder of `stillhouse new`: run `dvc repro`, and change a setting."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from programs import call

from stillhouse.pipeline.graph import GraphStep


def repro(folder: Path, steps: Sequence[GraphStep]) -> list[str]:
    """Run `dvc repro` and return the steps that ran.

    Each step must log its number among the steps of the run. Progress bars leave no trace in the log.
    """
    said = call(folder, "dvc", "repro", STILLHOUSE_QUIET="")
    places = re.findall(r"^step (\d+) of (\d+): (\w+) ", said, re.MULTILINE)
    names = [step.name for step in steps]
    assert all((int(number), int(of)) == (names.index(name) + 1, len(steps)) for number, of, name in places)
    assert "\r" not in said and "\x1b" not in said
    return [name for _, _, name in places]


def change(folder: Path, section: str, values: Mapping[str, Any]) -> None:
    path = folder / "params.yaml"
    content = yaml.safe_load(path.read_text())
    content[section] = content.get(section, {}) | values
    path.write_text(yaml.safe_dump(content, sort_keys=False))
