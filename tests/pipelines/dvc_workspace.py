"""What a user does in a folder of `stillhouse new`: run `dvc repro`, and change a setting."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from programs import call

from stillhouse.workflow.graph import Use


def repro(folder: Path, uses: Sequence[Use]) -> list[str]:
    """Run `dvc repro` and return the stages that ran, except `environment`, which runs every time.

    Each stage must log its number among the steps of the run. Progress bars leave no trace in the log.
    """
    said = call(folder, "dvc", "repro", STILLHOUSE_QUIET="")
    ran = [name for name in re.findall("^Running stage '(.*)'", said, re.MULTILINE) if name != "environment"]
    places = re.findall(r"^step (\d+) of (\d+): (\w+) ", said, re.MULTILINE)
    first = len(uses) - len(ran) + 1
    assert places == [(str(number), str(len(uses)), name) for number, name in enumerate(ran, start=first)]
    assert "\r" not in said and "\x1b" not in said
    return ran


def change(folder: Path, section: str, values: Mapping[str, Any]) -> None:
    path = folder / "params.yaml"
    content = yaml.safe_load(path.read_text())
    content[section] = content.get(section, {}) | values
    path.write_text(yaml.safe_dump(content, sort_keys=False))
