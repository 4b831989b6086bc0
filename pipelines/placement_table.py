"""Tables of placements: shared parts, kinds of pods made of them, and which kind each step has.

    shared:                      # every kind begins with these
      queue: stillhouse
    kinds:
      default: {memory: 2Gi}     # for every step that `steps` does not name
      training: {cpu: "8", memory: 64Gi, accelerator: {type: nvidia.com/gpu, count: 1}, preflight: true}
    steps:
      pretrain: training

A table is a file shipped beside this module, or a person's own.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pipelines.placement import Placement
from stillhouse.config import nearest
from stillhouse.context import WORK_ROOT
from stillhouse.errors import InputError
from stillhouse.steps.registry import steps
from stillhouse.yaml_file import read_yaml, shown

FOLDER = Path(__file__).resolve().parent / "placements"
DEFAULT_TABLE = "cpu"
DEFAULT_KIND = "default"
PARTS = ("shared", "kinds", "steps", "shards")
OTHERS = ("check-refresh", "plan-refresh", "release-refresh")
"""Tasks that are no steps and yet want pods of their own kind: they reach git, and handle whole releases."""
TRAININGS = ("pretrain", "train-retriever")
"""The steps that may run on several nodes. Encoding has shards instead, and other steps run in one process."""


@dataclass(frozen=True)
class PlacementTable:
    """Which placement the pods of each step have, and in how many `shards`, a pod each, a corpus is encoded."""

    name: str
    kinds: Mapping[str, Placement]
    steps: Mapping[str, str]
    shards: int = 1

    def of(self, name: str) -> Placement:
        """The placement of a step by its name, or of a component that is no step."""
        return self.kinds[self.steps.get(name, DEFAULT_KIND)]

    @property
    def default(self) -> Placement:
        """The placement of every step that has none of its own."""
        return self.kinds[DEFAULT_KIND]

    def on_nodes(self, nodes: int) -> PlacementTable:
        """The same table with the trainings that can on so many nodes each."""
        steps, kinds = dict(self.steps), dict(self.kinds)
        for step in TRAININGS:
            kind = f"{step} on {nodes} nodes"
            steps[step], kinds[kind] = kind, dataclasses.replace(self.of(step), nodes=nodes)
            refuse_nodes(step, kinds[kind], f"placements {self.name}")
        return dataclasses.replace(self, kinds=kinds, steps=steps)

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters that a pipeline with these placements has, and their defaults."""
        found: dict[str, str] = {}
        for placement in self.kinds.values():
            for name, default in placement.parameters.items():
                if found.setdefault(name, default) != default:
                    raise InputError(
                        f"placements {self.name}: {name} is {found[name]!r} in one kind and {default!r} in another; a "
                        "parameter of the pipeline has one default"
                    )
        return found


def shipped_tables() -> dict[str, Path]:
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def find_table(name: str) -> PlacementTable:
    """A table by the name of a shipped one or by its file. Raises `InputError` when there is none, or it is wrong."""
    path = shipped_tables().get(name, Path(name))
    if not path.is_file():
        raise InputError(
            f"there are no placements {name!r}, neither shipped nor a file; {nearest(name, shipped_tables())}"
        )
    return read_table(path)


def read_table(path: Path) -> PlacementTable:
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} must map kinds, steps and shared to their rows")
    for key in content:
        if key not in PARTS:
            raise InputError(f"{path}: unknown part {shown(key)}; {nearest(str(key), PARTS)}")
    shared, kinds, chosen = (_rows(content, key, path) for key in ("shared", "kinds", "steps"))
    if DEFAULT_KIND not in kinds:
        raise InputError(f"{path}: kinds has no {DEFAULT_KIND!r}, the pod of every step that `steps` does not name")
    for step, kind in chosen.items():
        known = [*steps(), *OTHERS]
        if step not in known:
            raise InputError(f"{path}: steps: there is no step {shown(step)}; {nearest(str(step), known)}")
        if kind not in kinds:
            raise InputError(f"{path}: steps: {step} has the kind {shown(kind)}; {nearest(str(kind), kinds)}")
    shards = content.get("shards", 1)
    if type(shards) is not int or not 1 <= shards <= 200:
        raise InputError(f"{path}: shards must be a whole number from 1 to 200, not {shown(shards)}")
    made = {}
    for kind, row in kinds.items():
        if row is not None and not isinstance(row, dict):
            raise InputError(f"{path}: kind {shown(kind)} must map settings to values, not {shown(row)}")
        made[kind] = make(Placement, shared | (row or {}), f"{path}: kind {kind}")
    table = PlacementTable(path.stem, made, chosen, shards)
    for step in steps():
        refuse_nodes(step, table.of(step), f"{path}: steps")
    assert table.parameters is not None  # one default a parameter
    return table


def refuse_nodes(step: str, placement: Placement, where: str) -> None:
    """Refuses several nodes for a step that cannot use them, or that would not find its volume there."""
    if placement.nodes == 1:
        return
    if step not in TRAININGS:
        raise InputError(
            f"{where}: {step} cannot run on {placement.nodes} nodes, only {' and '.join(TRAININGS)} can; give it a "
            "kind with nodes: 1"
        )
    if not any(claim.variable == WORK_ROOT for claim in placement.claims):
        raise InputError(
            f"{where}: {step} on {placement.nodes} nodes needs a volume that all of them mount; give its kind a claim "
            f"with variable: {WORK_ROOT}"
        )


def _rows(content: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    rows = content.get(key) or {}
    if not isinstance(rows, dict):
        raise InputError(f"{path}: {key} must be a mapping, not {shown(rows)}")
    return rows


def make(cls: type, values: Mapping[str, Any], where: str) -> Any:
    """A dataclass from plain data, those inside it too. Raises `InputError` for unknown names and wrong types."""
    hints = get_type_hints(cls)
    made = {}
    for name, value in values.items():
        if name not in hints:
            raise InputError(f"{where}: unknown setting {shown(name)}; {nearest(str(name), hints)}")
        made[name] = _value(hints[name], value, f"{where}: {name}")
    missing = [
        field.name
        for field in dataclasses.fields(cls)
        if field.name not in made and field.default is field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"{where} lacks {', '.join(missing)}")
    try:
        return cls(**made)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _value(kind: Any, value: Any, where: str) -> Any:
    if get_origin(kind) is types.UnionType:  # an optional dataclass
        return None if value is None else _value(get_args(kind)[0], value, where)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise InputError(f"{where} must map settings to values, not {shown(value)}")
        assert isinstance(kind, type)
        return make(kind, value, where)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise InputError(f"{where} must be a list, not {shown(value)}")
        return tuple(_value(get_args(kind)[0], entry, f"{where}[{number}]") for number, entry in enumerate(value))
    if get_origin(kind) is not None:  # a mapping of text to text
        if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
            raise InputError(f"{where} must map text to text, not {shown(value)}; put numbers and true into quotes")
        return dict(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise InputError(f"{where} must be {_NAMES[kind]}, not {shown(value)}")
    return value


_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text (in quotes)"}
