"""Which steps one Kubeflow task runs: the stages of a run, each with its inputs and outputs.

Every Kubeflow task costs two pods, a few seconds, and about 100 KB of the object in which Argo keeps the run, of which
Kubeflow reads at most 1 MiB (`pipelines/workflow_size.py`). So a task is a stage of the run and not a single step, and
there are few tasks. `TASKS` says which uses belong together. A use that a recipe adds joins the task whose outputs it
reads, and a training begins its own task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count

from stillhouse.steps.spec import Port
from stillhouse.workflow.uses import Use, used

PREPARE, EVALUATION = "prepare", "evaluation"
TASKS: Mapping[str, str] = {
    # by step
    "fetch-model": PREPARE,
    "ingest": PREPARE,
    "validate": PREPARE,
    "tokenize": PREPARE,
    "bm25": PREPARE,
    "count": PREPARE,
    "importance": PREPARE,
    "select-best": EVALUATION,
    "evaluate": EVALUATION,
    # by use, before its step
    "lm_head": "pretraining",
    "pretraining": "pretraining",
    "zero_shot_index": "first_retriever",
    "retriever_1_unpretrained": "first_retriever",
    "retriever_1": "first_retriever",
    "retriever_2": "second_retriever",
    "reranker": "distillation",
    "distilled": "distillation",
}
"""The task of a use, by the use's name or else by its step's."""
TRAININGS = frozenset({"pretrain", "train-retriever", "train-reranker"})
"""The steps that begin their own task if `TASKS` does not name the use."""
VERDICT = "validate/validation"
"""The input of a task that depends only on the one that validates."""


@dataclass(frozen=True)
class Task:
    """Uses that one Kubeflow task runs, one after the other.

    `inputs` are the `use/output` of other tasks that it reads. `outputs` are those of its own that it hands on, to
    other tasks or to people. Outputs that only its own uses read stay inside.
    """

    name: str
    uses: tuple[Use, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def output_port(self, source: str) -> Port:
        """The port of an output of one of its uses."""
        return next(use.step.port_of(source.partition("/")[2]) for use in self.uses if use.name == used(source))

    def holds(self, source: str) -> str:
        """The type that Kubeflow shows for one of its inputs."""
        found = (use.step.port_of(key) for use in self.uses for key, of in use.inputs.items() if of == source)
        return next((port.holds for port in found), "Dataset")


def tasks_of(uses: Sequence[Use], rows: Mapping[str, str] = TASKS, wanted: Collection[str] = ()) -> tuple[Task, ...]:
    """The tasks of `uses`, which are in the order of their dependencies, as are the tasks.

    `wanted` are outputs that are handed on even if no use of another task reads them. If joining a task would make two
    tasks wait for each other, the use begins another task.
    """
    groups = _Groups(rows)
    for use in uses:
        groups.put(use)
    read_elsewhere = {
        source for use in uses for source in use.inputs.values() if groups.of.get(used(source)) != groups.of[use.name]
    }
    read = {source for use in uses for source in use.inputs.values()}
    validated = groups.of.get(used(VERDICT))
    found = []
    for name in groups.in_order():
        members = groups.members[name]
        own = {use.name for use in members}
        inputs = [source for use in members for source in use.inputs.values() if used(source) not in own]
        # A task that also waits for other tasks is held back by those.
        if validated and validated != name and inputs and {groups.of.get(used(of)) for of in inputs} == {validated}:
            inputs.insert(0, VERDICT)
            read_elsewhere.add(VERDICT)
        found.append((name, tuple(members), tuple(dict.fromkeys(inputs))))
    return tuple(
        Task(name, members, inputs, tuple(_handed_on(members, read, read_elsewhere, wanted)))
        for name, members, inputs in found
    )


def _handed_on(
    members: Iterable[Use], read: Collection[str], read_elsewhere: Collection[str], wanted: Collection[str]
) -> Iterator[str]:
    """Outputs that other tasks read, outputs that nothing reads, since they are made for people, and every model."""
    for use in members:
        for port in use.step.outputs:
            source = f"{use.name}/{port.name}"
            if source in read_elsewhere or source in wanted or source not in read or port.holds == "Model":
                yield source


class _Groups:
    """Tasks while they are put together."""

    def __init__(self, rows: Mapping[str, str]) -> None:
        self.rows = rows
        self.members: dict[str, list[Use]] = {}
        self.of: dict[str, str] = {}
        """The task of each use that has one."""

    def put(self, use: Use) -> None:
        """Adds a use to its task, or to a new task if that is impossible."""
        read = list(dict.fromkeys(self.of[name] for name in use.read_from if name in self.of))
        name = self._belongs(use, read)
        if name in self.members and any(other != name and name in self._before(other) for other in read):
            name = self._new(use.name)
        self.of[use.name] = name
        self.members.setdefault(name, []).append(use)

    def _belongs(self, use: Use, read: Collection[str]) -> str:
        row = self.rows.get(use.name) or self.rows.get(use.step_name)
        if row:
            return row
        if use.step_name in TRAININGS or not read:
            return self._new(use.name)
        return max(read, key=self.in_order().index)

    def _new(self, name: str) -> str:
        """The name of a new task for the use `name`; another use may have begun a task of that name, or may join it."""
        taken = {*self.members, *self.rows.values()}
        return next(found for found in chain([name], (f"{name}_{number}" for number in count(2))) if found not in taken)

    def _before(self, name: str) -> set[str]:
        """The tasks that a task waits for, directly or indirectly."""
        found, left = set[str](), [name]
        while left:
            for use in self.members[left.pop()]:
                new = {self.of[other] for other in use.read_from if other in self.of} - found - {name}
                found |= new
                left += new
        return found

    def in_order(self) -> list[str]:
        """The tasks, each after those that it waits for."""
        found: list[str] = []
        left = list(self.members)
        while left:
            ready = next(name for name in left if self._before(name) <= set(found))
            found.append(ready)
            left.remove(ready)
        return found
