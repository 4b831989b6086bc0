"""What each stage of a run computes, as files that DVC watches: `artifacts/plan/<stage>.json`.

A file holds the version of each step of its stage, its settings with their defaults, and the digests of the paths that
they name. DVC runs a stage if this file or something that the stage reads has changed; `stillhouse run STAGE` then runs
the steps that are out of date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import write_whole_json
from stillhouse.core.config import recorded
from stillhouse.pipeline.graph_steps import ARTIFACTS, GraphStep, Stage, stages_of
from stillhouse.pipeline.steps.places import location_fields, read_here

PLAN = ARTIFACTS / "plan"


def plan_file(stage: str) -> Path:
    """The file of a stage, in a workspace."""
    return PLAN / f"{stage}.json"


def planned(stage: Stage, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a stage computes, by step: version, settings, the sources of its inputs and the places that it reads."""
    return {
        step.name: {
            "step": step.kind,
            "version": step.spec.version,
            "inputs": dict(step.inputs),
            "settings": recorded(settings[step.name]),
            "places": {name: getattr(settings[step.name], name) for name in location_fields(step.spec)},
        }
        for step in stage.steps
    }


def write_plan(steps: Sequence[GraphStep], settings: Mapping[str, Any], folder: Path) -> None:
    """Writes the plan of every stage below `folder`, and removes those of stages that the run no longer has."""
    stages = stages_of(steps)
    for stage in stages:
        content = planned(stage, settings)
        for step in stage.steps:  # dvc.yaml may not name all places
            content[step.name]["read"] = read_here(step.spec, settings[step.name])
        write_whole_json(folder / plan_file(stage.name), content)
    for path in (folder / PLAN).glob("*.json"):
        if path.stem not in {stage.name for stage in stages}:
            path.unlink()
