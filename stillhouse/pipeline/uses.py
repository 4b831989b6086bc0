"""A use of a step: one node of a graph, with the sources of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.steps.spec import Step

ARTIFACTS = Path("artifacts")


@dataclass(frozen=True)
class Use:
    """One use of a step. `inputs` maps the key of an input (a port, or `port/NAME` for a port that takes many) to
    `use/output` of an earlier use.

    Its settings are the recipe's section with its own name, or those of the use `settings_of`. `stage` is the stage
    that runs it.
    """

    name: str
    step_name: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    settings_of: str = ""
    stage: str = ""

    @property
    def section(self) -> str:
        return self.settings_of or self.name

    @property
    def step(self) -> Step:
        return find_step(self.step_name)

    @property
    def read_from(self) -> list[str]:
        """The uses whose outputs it reads."""
        return [used(source) for source in self.inputs.values()]

    def input_paths(self, root: Path = ARTIFACTS) -> dict[str, Path]:
        return {port: root / source for port, source in self.inputs.items()}

    def output_paths(self, root: Path = ARTIFACTS) -> dict[str, Path]:
        return {port.name: root / self.name / port.name for port in self.step.outputs}


def used(source: str) -> str:
    """The use of `use/output`."""
    return source.partition("/")[0]


def needed(uses: Iterable[Use], targets: Iterable[str]) -> list[Use]:
    """The uses that `targets` depend on, themselves included, in the order of `uses`."""
    uses = list(uses)
    wanted = set(targets)
    for use in reversed(uses):
        if use.name in wanted:
            wanted |= set(use.read_from)
    return [use for use in uses if use.name in wanted]


def dense(system: str, retriever: str, settings_of: str = "") -> tuple[Use, Use]:
    """The index and the run of one retriever (`use/output`); their settings may be those of another system."""
    corpus, gate = {"corpus": "ingest/corpus"}, {"validation": "validate/validation"}
    other = {part: f"{settings_of}_{part}" if settings_of else "" for part in ("index", "run")}
    inputs = {"retriever": retriever, "index": f"{system}_index/index"}
    return (
        Use(f"{system}_index", "index", corpus | gate | {"retriever": retriever}, other["index"]),
        Use(f"{system}_run", "retrieve", corpus | inputs, other["run"]),
    )


def staged(table: Mapping[str, Iterable[Use]]) -> tuple[Use, ...]:
    """The uses of a table of stages, in order, each with its stage."""
    return tuple(replace(use, stage=stage) for stage, uses in table.items() for use in uses)


@dataclass(frozen=True)
class Stage:
    """Steps that one process runs, one after the other: a stage of dvc.yaml, a task on Kubeflow."""

    name: str
    uses: tuple[Use, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads of other stages, each as `use/output`."""
        own = {use.name for use in self.uses}
        read = (source for use in self.uses for source in use.inputs.values())
        return tuple(dict.fromkeys(source for source in read if used(source) not in own))

    def reads(self, others: Iterable[Stage]) -> list[Stage]:
        """Those of `others` whose outputs it reads."""
        read = {used(source) for source in self.sources}
        return [other for other in others if read & {use.name for use in other.uses}]


def stages_of(uses: Sequence[Use]) -> tuple[Stage, ...]:
    """The stages of `uses`, each after those that it reads."""
    members: dict[str, list[Use]] = {}
    for use in uses:
        members.setdefault(use.stage, []).append(use)
    of = {use.name: use.stage for use in uses}
    return tuple(Stage(name, tuple(members[name])) for name in _in_order(members, of))


STAGE_OF_STEP: Mapping[str, str] = dict.fromkeys(
    ("fetch-model", "ingest", "validate", "tokenize", "count", "importance", "bm25"), "corpus"
)
"""The stage of steps that a recipe adds. Others join the last stage that they read from, and a training begins one."""
TRAININGS = frozenset({"pretrain", "train-retriever", "train-reranker"})


def with_stages(uses: Sequence[Use]) -> tuple[Use, ...]:
    """`uses`, in the order of their dependencies, each with a stage; a table's own steps have one already.

    A step begins a stage of its own where two stages would otherwise wait for each other.
    """
    members: dict[str, list[Use]] = {}
    of: dict[str, str] = {}
    taken = {use.stage for use in uses if use.stage}
    for use in uses:
        read = list(dict.fromkeys(of[name] for name in use.read_from))
        name = use.stage or STAGE_OF_STEP.get(use.step_name, "")
        if not name and read and use.step_name not in TRAININGS:
            name = max(read, key=_in_order(members, of).index)
        if not name or (name in members and any(name in _before(other, members, of) for other in read)):
            name = next(new for n in count(1) if (new := f"{use.name}_{n}" if n > 1 else use.name) not in taken)
        taken.add(name)
        of[use.name] = name
        members.setdefault(name, []).append(use)
    return tuple(replace(use, stage=of[use.name]) for use in uses)


def _before(stage: str, members: Mapping[str, Sequence[Use]], of: Mapping[str, str]) -> set[str]:
    """The stages that a stage waits for, directly or indirectly; itself too if it waits for itself."""
    found, left = set[str](), [stage]
    while left:
        name = left.pop()
        read = {of[other] for use in members[name] for other in use.read_from if other in of} - {name}
        left += read - found
        found |= read
    return found


def _in_order(members: Mapping[str, Sequence[Use]], of: Mapping[str, str]) -> list[str]:
    """The stages, each after those that it waits for."""
    found: list[str] = []
    while len(found) < len(members):
        found.append(next(n for n in members if n not in found and _before(n, members, of) <= set(found)))
    return found
