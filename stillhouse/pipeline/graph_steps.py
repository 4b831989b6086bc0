"""The steps of a graph, each with the sources of its inputs, and the stages that run them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.steps.spec import Step

ARTIFACTS = Path("artifacts")


@dataclass(frozen=True)
class GraphStep:
    """A step of a graph, such as `retriever_1`, whose kind is `train-retriever`.

    `inputs` maps the key of an input (a port, or `port/NAME` for a port that takes many) to `step/output` of an
    earlier step. Its settings are the recipe's section with its own name, or those of the step `settings_of`. `stage`
    is the stage that runs it.
    """

    name: str
    kind: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    settings_of: str = ""
    stage: str = ""

    @property
    def section(self) -> str:
        return self.settings_of or self.name

    @property
    def spec(self) -> Step:
        return find_step(self.kind)

    @property
    def read_from(self) -> list[str]:
        """The steps whose outputs it reads."""
        return [step_of(source) for source in self.inputs.values()]

    def input_paths(self, root: Path = ARTIFACTS) -> dict[str, Path]:
        return {port: root / source for port, source in self.inputs.items()}

    def output_paths(self, root: Path = ARTIFACTS) -> dict[str, Path]:
        return {port.name: root / self.name / port.name for port in self.spec.outputs}


def step_of(source: str) -> str:
    """The step of `step/output`."""
    return source.partition("/")[0]


def needed(steps: Iterable[GraphStep], targets: Iterable[str]) -> list[GraphStep]:
    """The steps that `targets` depend on, themselves included, in the order of `steps`."""
    steps = list(steps)
    wanted = set(targets)
    for step in reversed(steps):
        if step.name in wanted:
            wanted |= set(step.read_from)
    return [step for step in steps if step.name in wanted]


def dense(system: str, retriever: str, settings_of: str = "") -> tuple[GraphStep, GraphStep]:
    """The index and the run of one retriever (`step/output`); their settings may be those of another system."""
    corpus, gate = {"corpus": "ingest/corpus"}, {"validation": "validate/validation"}
    other = {part: f"{settings_of}_{part}" if settings_of else "" for part in ("index", "run")}
    inputs = {"retriever": retriever, "index": f"{system}_index/index"}
    return (
        GraphStep(f"{system}_index", "index", corpus | gate | {"retriever": retriever}, other["index"]),
        GraphStep(f"{system}_run", "retrieve", corpus | inputs, other["run"]),
    )


def staged(table: Mapping[str, Iterable[GraphStep]]) -> tuple[GraphStep, ...]:
    """The steps of a table of stages, in order, each with its stage."""
    return tuple(replace(step, stage=stage) for stage, steps in table.items() for step in steps)


@dataclass(frozen=True)
class Stage:
    """Steps that one process runs, one after the other: a stage of dvc.yaml, a task on Kubeflow."""

    name: str
    steps: tuple[GraphStep, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads of other stages, each as `step/output`."""
        own = {step.name for step in self.steps}
        read = (source for step in self.steps for source in step.inputs.values())
        return tuple(dict.fromkeys(source for source in read if step_of(source) not in own))

    def reads(self, others: Iterable[Stage]) -> list[Stage]:
        """Those of `others` whose outputs it reads."""
        read = {step_of(source) for source in self.sources}
        return [other for other in others if read & {step.name for step in other.steps}]


def stages_of(steps: Sequence[GraphStep]) -> tuple[Stage, ...]:
    """The stages of `steps`, each after those that it reads."""
    members: dict[str, list[GraphStep]] = {}
    for step in steps:
        members.setdefault(step.stage, []).append(step)
    of = {step.name: step.stage for step in steps}
    return tuple(Stage(name, tuple(members[name])) for name in _in_order(members, of))


STAGE_OF_STEP: Mapping[str, str] = dict.fromkeys(
    ("fetch-model", "ingest", "validate", "tokenize", "count", "importance", "bm25"), "corpus"
)
"""The stage of steps that a recipe adds. Others join the last stage that they read from, and a training begins one."""
TRAININGS = frozenset({"pretrain", "train-retriever", "train-reranker"})


def with_stages(steps: Sequence[GraphStep]) -> tuple[GraphStep, ...]:
    """`steps`, in the order of their dependencies, each with a stage; a table's own steps have one already.

    Returns them stage by stage, each stage after those that it reads. A step begins a stage of its own where two stages
    would otherwise wait for each other.
    """
    members: dict[str, list[GraphStep]] = {}
    of: dict[str, str] = {}
    taken = {step.stage for step in steps if step.stage}
    for step in steps:
        read = list(dict.fromkeys(of[name] for name in step.read_from))
        name = step.stage or STAGE_OF_STEP.get(step.kind, "")
        if not name and read and step.kind not in TRAININGS:
            name = max(read, key=_in_order(members, of).index)
        if not name or (name in members and any(name in _before(other, members, of) for other in read)):
            name = next(new for n in count(1) if (new := f"{step.name}_{n}" if n > 1 else step.name) not in taken)
        taken.add(name)
        of[step.name] = name
        members.setdefault(name, []).append(step)
    return tuple(replace(step, stage=name) for name in _in_order(members, of) for step in members[name])


def _before(stage: str, members: Mapping[str, Sequence[GraphStep]], of: Mapping[str, str]) -> set[str]:
    """The stages that a stage waits for, directly or indirectly; itself too if it waits for itself."""
    found, left = set[str](), [stage]
    while left:
        name = left.pop()
        read = {of[other] for step in members[name] for other in step.read_from if other in of} - {name}
        left += read - found
        found |= read
    return found


def _in_order(members: Mapping[str, Sequence[GraphStep]], of: Mapping[str, str]) -> list[str]:
    """The stages, each after those that it waits for."""
    found: list[str] = []
    while len(found) < len(members):
        found.append(next(n for n in members if n not in found and _before(n, members, of) <= set(found)))
    return found
