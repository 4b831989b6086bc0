"""Tables of placements: shared settings, kinds of pods based on them, and the kind of each step.

    shared:                      # every kind starts with these
      queue: stillhouse
    kinds:
      default: {memory: 2Gi}     # for every step that `steps` does not name
      training: {cpu: "8", memory: 64Gi, accelerator: {type: nvidia.com/gpu, count: 1}}
    steps:
      pretrain: training

A table is a file shipped with this module, or the user's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stillhouse.core.config import read_as, refuse_unknown
from stillhouse.core.errors import InputError
from stillhouse.core.yaml_file import read_yaml
from stillhouse.kubeflow.placement import Placement
from stillhouse.pipeline.recipes import find_file
from stillhouse.pipeline.steps.registry import steps

FOLDER = Path(__file__).resolve().parent / "placements"
DEFAULT_TABLE = "cpu"
DEFAULT_KIND = "default"
OTHERS = ("check-refresh", "plan-refresh", "release-refresh")
"""Tasks that are not steps but have their own kind of pod: they use git and handle whole releases."""
TRAININGS = ("pretrain", "train-retriever")
"""The steps that may run on several nodes. Other steps run in one process or, if in `DIVIDED`, in shards."""


@dataclass(frozen=True)
class PlacementTable:
    """The placement of each step, and the number of nodes, `shards`, that encode a corpus."""

    name: str
    kinds: Mapping[str, Placement]
    steps: Mapping[str, str] = field(default_factory=dict)
    shards: int = 1

    def __post_init__(self) -> None:
        if DEFAULT_KIND not in self.kinds:
            raise InputError(f"kinds has no {DEFAULT_KIND!r}, the pod of every step that `steps` does not name")
        known = [*steps(), *OTHERS]
        for name, kind in self.steps.items():
            refuse_unknown(name, known, "steps: there is no step")
            refuse_unknown(kind, self.kinds, f"steps: {name} has the kind")
        if not 1 <= self.shards <= 99:
            raise InputError(f"shards must be a whole number from 1 to 99, not {self.shards}")
        several = list(dict.fromkeys(str(one.accelerator) for one in self.kinds.values() if one.accelerator))
        if several[1:]:
            raise InputError(f"one kind has the {several[0]}, another the {several[1]}; a pipeline has one for all")
        for step in steps():
            refuse_nodes(step, self.of(step))

    def of(self, name: str) -> Placement:
        """The placement of a step, or of a component that is not a step, by name."""
        return self.kinds[self.steps.get(name, DEFAULT_KIND)]

    def on_nodes(self, nodes: int) -> PlacementTable:
        """The same table, with each training in `TRAININGS` on this many nodes."""
        steps, kinds = dict(self.steps), dict(self.kinds)
        for step in TRAININGS:
            kind = f"{step} on {nodes} nodes"
            steps[step], kinds[kind] = kind, dataclasses.replace(self.of(step), nodes=nodes)
        return dataclasses.replace(self, kinds=kinds, steps=steps)

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of a pipeline with these placements, and their defaults."""
        return next((placement.parameters for placement in self.kinds.values() if placement.accelerator), {})


def find_table(name: str) -> PlacementTable:
    """A shipped table by name, or a table by file. Raises `InputError` if it is missing or wrong."""
    path = find_file(name, FOLDER, "placement table")
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} must map kinds, steps and shared to their rows")
    shared, kinds = content.pop("shared", None) or {}, content.get("kinds")
    if not isinstance(shared, dict):
        raise InputError(f"{path}: shared must map settings to values")
    if isinstance(kinds, dict):
        rows = {name: {} if row is None else row for name, row in kinds.items()}
        content["kinds"] = {name: shared | row if isinstance(row, dict) else row for name, row in rows.items()}
    return read_as(PlacementTable, content | {"name": path.stem}, str(path))


def refuse_nodes(step: str, placement: Placement) -> None:
    """Refuses several nodes for a step that cannot use them, or that would lack its volume there."""
    if placement.nodes == 1:
        return
    if step not in TRAININGS:
        raise InputError(
            f"steps: {step} cannot run on {placement.nodes} nodes, only {' and '.join(TRAININGS)} can; give it a kind "
            "with nodes: 1"
        )
    if not placement.claims:
        raise InputError(
            f"steps: {step} on {placement.nodes} nodes needs a volume that all of them mount; give its kind a claim"
        )
