"""Steps that a benchmark runs in its own process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillhouse.core.config import build
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step


def step(name: str, inputs: Mapping[str, Path], outputs: Mapping[str, Path], **settings: object) -> Any:
    """Runs the step `name` with these settings; gives what it did."""
    found = find_step(name)
    return execute(found, build(found.config, settings, name), dict(inputs), dict(outputs))


def step_once(name: str, inputs: Mapping[str, Path], outputs: Mapping[str, Path], **settings: object) -> None:
    """The same, unless all its outputs are there."""
    if not all(place.is_dir() for place in outputs.values()):
        step(name, inputs, outputs, **settings)
