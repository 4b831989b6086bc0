"""The tables of docs/reference/papers.md name settings, values, sweeps and recipes that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillhouse.core.config import build, field_types
from stillhouse.experiments.comparison.sweeps import SWEEPS
from stillhouse.pipeline.graph import known_steps
from stillhouse.pipeline.recipes import shipped_files

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "papers.md"
ROWS = re.findall(r"^\| [^|]+ \| ([^|]*?) ?\| (`[^|]+) \|$", PAGE.read_text(), re.M)
SETTINGS = [found for settings, _ in ROWS for found in re.findall(r"`(\w+)\.(\w+)(?:: ([^`]+))?`", settings)]
PLACES = sorted({found for _, places in ROWS for found in re.findall(r"`([^`]+)`", places)})


@pytest.mark.parametrize(("step", "setting", "value"), SETTINGS)
def test_a_setting_exists_and_accepts_the_value(step: str, setting: str, value: str) -> None:
    config: Any = known_steps({})[step].spec.config
    assert setting in field_types(config)
    if value:
        build(config, {setting: yaml.safe_load(value)}, "papers.md")


@pytest.mark.parametrize("place", [place for place in PLACES if not place.startswith("stillhouse ")])
def test_a_sweep_or_recipe_exists(place: str) -> None:
    assert place in [*shipped_files(SWEEPS), *shipped_files(SWEEPS.parent)]


def test_every_sweep_of_a_paper_has_a_row() -> None:
    assert {name for name in shipped_files(SWEEPS) if re.match(r"(simlm|bow|cdmae|chang)-", name)} <= set(PLACES)
