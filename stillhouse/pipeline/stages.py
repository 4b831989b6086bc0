"""A recipe's section `stages`: which steps of its graph read something else, and which are new.

stages:
  retriever_2: {encoder: retriever_1/retriever}  # other inputs; null removes an optional one
  distilled_2:                                   # a new step: its name, its step, its inputs, its settings
    step: train-retriever
    settings_of: distilled
    corpus: ingest/corpus
    encoder: distilled/retriever
    negatives: mine_2/negatives
    system: distilled_2/retriever                # with its index, its run and its place in the evaluation
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stillhouse.core.config import nearest, refuse_unknown
from stillhouse.core.errors import InputError
from stillhouse.core.yaml_file import shown
from stillhouse.pipeline.graph_steps import GraphStep, dense, step_of, with_stages
from stillhouse.pipeline.steps.registry import find_step, steps
from stillhouse.pipeline.steps.spec import NAME, Port, Step

STAGES = "stages"
"""The section; no step may have this name."""
STEP, SETTINGS, SYSTEM = "step", "settings_of", "system"
EVALUATE, RUN, CURVES = "evaluate", "run", "curves"
INGESTED = "ingest/corpus"
SELECT, CANDIDATES, INDEXES = "select-best", "candidates", "indexes"
RESERVED = (STAGES, "graph", "plan", "champion")
"""Names that a step may not have: keys of a recipe, and stages of dvc.yaml that are not steps."""
USE_NAME = re.compile("[a-z][a-z0-9_]*")


def changed(table: Sequence[GraphStep], rows: Any, where: str, sections: Collection[str] = ()) -> tuple[GraphStep, ...]:
    """The steps of `table` as changed by `rows`, each after the steps that it reads.

    `sections` are the recipe's sections: a new system's index and run take their own settings if they have a section.
    Raises `InputError`, with a message that begins with `where`, for an invalid row.
    """
    if not rows:
        return tuple(table)
    if not isinstance(rows, Mapping):
        raise InputError(f"{where}: {STAGES} must map steps to their inputs, not {shown(rows)}")
    graph = _Graph(table, where, frozenset(sections), {step.name: step for step in table})
    for name, row in rows.items():
        graph.read(str(name), row)
    graph.check_inputs()
    return with_stages(graph.in_order())


@dataclass
class _Graph:
    """A graph while it is changed. `given` holds the inputs that the recipe itself states, as (step, key)."""

    table: Sequence[GraphStep]
    where: str
    sections: Collection[str]
    steps: dict[str, GraphStep]
    given: set[tuple[str, str]] = field(default_factory=set)

    def refuse(self, name: str, why: str) -> InputError:
        return InputError(f"{self.where}: {STAGES}.{name}: {why}")

    def read(self, name: str, row: Any) -> None:
        """Applies one row."""
        known = next((step for step in self.table if step.name == name), None)
        if not isinstance(row, Mapping) or not row:
            raise self.refuse(name, f"write its inputs, as in `encoder: retriever_1/retriever`, not {shown(row)}")
        if known is not None:
            self._change(known, row)
        else:
            self._add(name, row)

    def _change(self, step: GraphStep, row: Mapping[Any, Any]) -> None:
        for key in (STEP, SYSTEM):
            if key in row:
                raise self.refuse(step.name, f"`{key}` is for new steps, but this is a {step.kind} of every run")
        settings = self._settings_of(step.name, step.spec, row) or step.settings_of
        inputs = self._inputs(step.name, step.spec, row, step.inputs)
        self.steps[step.name] = replace(step, inputs=inputs, settings_of=settings)

    def _add(self, name: str, row: Mapping[Any, Any]) -> None:
        if STEP not in row and SYSTEM not in row:
            raise self.refuse(name, f"there is no such step, and a new one needs `{STEP}`; {nearest(name, self.steps)}")
        if not USE_NAME.fullmatch(name) or name in RESERVED:
            raise self.refuse(name, "a new step needs an unused name of lowercase letters, digits and _")
        if STEP in row:
            refuse_unknown(row[STEP], steps(), f"{self.where}: {STAGES}.{name}: there is no step")
            step = find_step(row[STEP])
            settings = self._settings_of(name, step, row)
            self._put(GraphStep(name, step.name, self._inputs(name, step, row, {}), settings))
            evaluated = row.get("corpus", INGESTED) == INGESTED  # not a generator that learned from another corpus
            if evaluated and any(port.name == CURVES for port in step.outputs):
                self._read_by(EVALUATE, f"{CURVES}/{name}", f"{name}/{CURVES}")
        elif set(row) - {SYSTEM, SETTINGS}:
            raise self.refuse(name, f"{', '.join(sorted(map(str, row)))}: inputs belong to a `{STEP}`; name one")
        if SYSTEM in row:
            self._add_system(name, row)

    def _add_system(self, name: str, row: Mapping[Any, Any]) -> None:
        """Adds a retriever's index and run, and its place in the evaluation; for a run, only that place."""
        source, other = str(row[SYSTEM]), str(row.get(SETTINGS, ""))
        outputs = self._outputs()
        port = outputs.get(source)
        if port is not None and port.name == RUN:
            key = f"{RUN}/{name.removesuffix('_run')}"
            self._read_by(EVALUATE, key, source)
            self.given |= {(step.name, key) for step in self.steps.values() if step.kind == EVALUATE}
            return
        retrievers = [of for of, made in outputs.items() if made.kind == "model" and made.name != "reranker"]
        refuse_unknown(source, retrievers, f"{self.where}: {STAGES}.{name}: {SYSTEM} cannot be")
        for step, own in zip(dense(name, source, other), dense(name, source)):
            section = step.section
            if other and section not in {known.name for known in self.table}:
                raise self.refuse(name, f"there is no {section} to take settings from; {nearest(other, self.steps)}")
            self._put(own if own.name in self.sections else step)
            self.given |= {(step.name, key) for key in step.inputs if step.inputs[key] == source}
        self._read_by(EVALUATE, f"{RUN}/{name}", f"{name}_run/{RUN}")
        self._read_by(SELECT, f"{CANDIDATES}/{name}", source)
        self._read_by(SELECT, f"{INDEXES}/{name}", f"{name}_index/index")

    def _put(self, step: GraphStep) -> None:
        """Adds a step before the model selection and the evaluation, where readers expect it."""
        if step.name in self.steps:
            raise self.refuse(step.name, "a step with this name exists already; choose another name")
        last = {name: kept for name, kept in self.steps.items() if kept.kind in (SELECT, EVALUATE)}
        self.steps = {name: kept for name, kept in self.steps.items() if name not in last} | {step.name: step} | last

    def _read_by(self, kind: str, key: str, source: str) -> None:
        """Makes every step of a kind read one more folder, unless the recipe states an input with that name."""
        for step in [step for step in self.steps.values() if step.kind == kind]:
            if (step.name, key) not in self.given:
                # The winner among all systems stays last.
                last = {known: of for known, of in step.inputs.items() if self._is_of_choice(of)}
                first = {known: of for known, of in step.inputs.items() if known not in last}
                self.steps[step.name] = replace(step, inputs={**first, key: source, **last})

    def _is_of_choice(self, source: str) -> bool:
        """Whether an output is the run of the winner of a `select-best`."""
        run = self.steps.get(step_of(source))
        return run is not None and any(self.steps[name].kind == SELECT for name in run.read_from if name in self.steps)

    def _settings_of(self, name: str, spec: Step, row: Mapping[Any, Any]) -> str:
        other = row.get(SETTINGS)
        if other is None:
            return ""
        known = (*self.table, *self.steps.values())
        fitting = {step.name: step.section for step in known if step.kind == spec.name}
        if other not in fitting or other == name:
            raise self.refuse(
                name, f"{SETTINGS} {shown(other)} is not another {spec.name}; {nearest(str(other), fitting)}"
            )
        if name in self.sections:
            raise self.refuse(name, f"it has both its own section and the settings of {other}; leave one of them out")
        return fitting[other]

    def _inputs(self, name: str, step: Step, row: Mapping[Any, Any], before: Mapping[str, str]) -> dict[str, str]:
        found = dict(before)
        for key, source in row.items():
            if key in (STEP, SETTINGS, SYSTEM):
                continue
            port = next((port for port in step.inputs if port.keys([str(key)])), None)
            if port is None or (port.many and not NAME.fullmatch(str(key).partition("/")[2])):
                known = [f"{port.name}/NAME" if port.many else port.name for port in step.inputs]
                raise self.refuse(name, f"{step.name} has no input {shown(key)}; {nearest(str(key), known)}")
            self.given.add((name, str(key)))
            if source is None:
                found.pop(str(key), None)
            elif isinstance(source, str):
                found[str(key)] = source
            else:
                raise self.refuse(name, f"{key} must be `step/output` or null, not {shown(source)}")
        return found

    def _outputs(self) -> dict[str, Port]:
        """The outputs of all steps, as `step/output`."""
        return {f"{step.name}/{port.name}": port for step in self.steps.values() for port in step.spec.outputs}

    def check_inputs(self) -> None:
        """Refuses inputs that no step writes or that are of another kind, and steps that lack one."""
        outputs = self._outputs()
        for step in self.steps.values():
            for key, source in step.inputs.items():
                kind = step.spec.port_of(key).kind
                fitting = [of for of, port in outputs.items() if port.kind == kind]
                refuse_unknown(source, fitting, f"{self.where}: {STAGES}.{step.name}: {key} cannot be")
            for port in step.spec.inputs:
                if not port.optional and not port.keys(step.inputs):
                    raise self.refuse(step.name, f"it needs `{port.name}`: {port.help}")

    def in_order(self) -> tuple[GraphStep, ...]:
        """The steps in the listed order, but each after those that it reads. Raises `InputError` for a cycle."""
        left, found = dict(self.steps), list[GraphStep]()
        while left:
            ready = next((step for step in left.values() if not set(step.read_from) & left.keys()), None)
            if ready is None:
                raise InputError(f"{self.where}: {STAGES}: {_circle(left)} form a cycle; break it")
            found.append(left.pop(ready.name))
        return tuple(_by_port(step) if step.kind in (SELECT, EVALUATE) else step for step in found)


def _by_port(step: GraphStep) -> GraphStep:
    """The step with its inputs in the order of its ports, as people read them in a command."""
    return replace(step, inputs={key: step.inputs[key] for port in step.spec.inputs for key in port.keys(step.inputs)})


def _circle(steps: Mapping[str, GraphStep]) -> str:
    """The names of steps that form a cycle; each of `steps` reads another of them."""
    path = [next(iter(steps))]
    while path[-1] not in path[:-1]:
        path.append(next(name for name in steps[path[-1]].read_from if name in steps))
    return " ← ".join(path[path.index(path[-1]) :])
