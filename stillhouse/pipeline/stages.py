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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stillhouse.core.config import nearest, refuse_unknown
from stillhouse.core.errors import InputError
from stillhouse.core.yaml_file import shown
from stillhouse.pipeline.steps.registry import find_step, steps
from stillhouse.pipeline.steps.spec import NAME, Port, Step
from stillhouse.pipeline.uses import Use, dense, used, with_stages

STAGES = "stages"
"""The section; no use may have this name."""
STEP, SETTINGS, SYSTEM = "step", "settings_of", "system"
EVALUATE, RUN, CURVES = "evaluate", "run", "curves"
INGESTED = "ingest/corpus"
SELECT, CANDIDATES, INDEXES = "select-best", "candidates", "indexes"
RESERVED = (STAGES, "graph", "plan", "champion")
"""Names that a use may not have: keys of a recipe, and stages of dvc.yaml that are not uses."""
USE_NAME = re.compile("[a-z][a-z0-9_]*")


def changed(table: Sequence[Use], rows: Any, where: str, sections: Collection[str] = ()) -> tuple[Use, ...]:
    """The uses of `table` as changed by `rows`, each after the uses that it reads.

    `sections` are the recipe's sections: a new system's index and run take their own settings if they have a section.
    Raises `InputError`, with a message that begins with `where`, for an invalid row.
    """
    if not rows:
        return tuple(table)
    if not isinstance(rows, Mapping):
        raise InputError(f"{where}: {STAGES} must map steps to their inputs, not {shown(rows)}")
    graph = _Graph(table, where, frozenset(sections))
    for name, row in rows.items():
        graph.read(str(name), row)
    graph.check_inputs()
    return with_stages(graph.in_order())


@dataclass
class _Graph:
    """A graph while it is changed. `given` holds the inputs that the recipe itself states, as (use, key)."""

    table: Sequence[Use]
    where: str
    sections: Collection[str]
    uses: dict[str, Use] = field(init=False)
    given: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.uses = {use.name: use for use in self.table}

    def refuse(self, name: str, why: str) -> InputError:
        return InputError(f"{self.where}: {STAGES}.{name}: {why}")

    def read(self, name: str, row: Any) -> None:
        """Applies one row."""
        known = next((use for use in self.table if use.name == name), None)
        if not isinstance(row, Mapping) or not row:
            raise self.refuse(name, f"write its inputs, as in `encoder: retriever_1/retriever`, not {shown(row)}")
        if known is not None:
            self._change(known, row)
        else:
            self._add(name, row)

    def _change(self, use: Use, row: Mapping[Any, Any]) -> None:
        for key in (STEP, SYSTEM):
            if key in row:
                raise self.refuse(use.name, f"`{key}` is for new steps, but this is a {use.step_name} of every run")
        settings = self._settings_of(use.name, use.step, row) or use.settings_of
        inputs = self._inputs(use.name, use.step, row, use.inputs)
        self.uses[use.name] = replace(use, inputs=inputs, settings_of=settings)

    def _add(self, name: str, row: Mapping[Any, Any]) -> None:
        if STEP not in row and SYSTEM not in row:
            raise self.refuse(name, f"there is no such step, and a new one needs `{STEP}`; {nearest(name, self.uses)}")
        if not USE_NAME.fullmatch(name) or name in RESERVED:
            raise self.refuse(name, "a new step needs an unused name of lowercase letters, digits and _")
        if STEP in row:
            refuse_unknown(row[STEP], steps(), f"{self.where}: {STAGES}.{name}: there is no step")
            step = find_step(row[STEP])
            settings = self._settings_of(name, step, row)
            self._put(Use(name, step.name, self._inputs(name, step, row, {}), settings))
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
        port = self._outputs(lambda port: True).get(source)
        if port is not None and port.name == RUN:
            key = f"{RUN}/{name.removesuffix('_run')}"
            self._read_by(EVALUATE, key, source)
            self.given |= {(use.name, key) for use in self.uses.values() if use.step_name == EVALUATE}
            return
        retrievers = self._outputs(lambda port: port.kind == "model" and port.name != "reranker")
        refuse_unknown(source, retrievers, f"{self.where}: {STAGES}.{name}: {SYSTEM} cannot be")
        for use, own in zip(dense(name, source, other), dense(name, source)):
            if other and use.section not in {known.name for known in self.table}:
                raise self.refuse(name, f"there is no {use.section} to take settings from; {nearest(other, self.uses)}")
            self._put(own if own.name in self.sections else use)
            self.given |= {(use.name, key) for key in use.inputs if use.inputs[key] == source}
        self._read_by(EVALUATE, f"{RUN}/{name}", f"{name}_run/{RUN}")
        self._read_by(SELECT, f"{CANDIDATES}/{name}", source)
        self._read_by(SELECT, f"{INDEXES}/{name}", f"{name}_index/index")

    def _put(self, use: Use) -> None:
        """Adds a use before the model selection and the evaluation, where readers expect it."""
        if use.name in self.uses:
            raise self.refuse(use.name, "a step with this name exists already; choose another name")
        last = {name: kept for name, kept in self.uses.items() if kept.step_name in (SELECT, EVALUATE)}
        self.uses = {name: kept for name, kept in self.uses.items() if name not in last} | {use.name: use} | last

    def _read_by(self, step: str, key: str, source: str) -> None:
        """Makes every use of a step read one more folder, unless the recipe states an input with that name."""
        for use in [use for use in self.uses.values() if use.step_name == step]:
            if (use.name, key) not in self.given:
                # The winner among all systems stays last.
                last = {known: of for known, of in use.inputs.items() if self._is_of_choice(of)}
                first = {known: of for known, of in use.inputs.items() if known not in last}
                self.uses[use.name] = replace(use, inputs={**first, key: source, **last})

    def _is_of_choice(self, source: str) -> bool:
        """Whether an output is the run of the winner of a `select-best`."""
        run = self.uses.get(used(source))
        return run is not None and any(
            self.uses[name].step_name == SELECT for name in run.read_from if name in self.uses
        )

    def _settings_of(self, name: str, step: Step, row: Mapping[Any, Any]) -> str:
        other = row.get(SETTINGS)
        if other is None:
            return ""
        fitting = {use.name: use.section for use in (*self.table, *self.uses.values()) if use.step_name == step.name}
        if other not in fitting or other == name:
            raise self.refuse(
                name, f"{SETTINGS} {shown(other)} is not another {step.name}; {nearest(str(other), fitting)}"
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

    def _outputs(self, fitting: Callable[[Port], bool]) -> dict[str, Port]:
        """The outputs of all uses, as `use/output`, that are `fitting`."""
        return {
            f"{use.name}/{port.name}": port for use in self.uses.values() for port in use.step.outputs if fitting(port)
        }

    def check_inputs(self) -> None:
        """Refuses inputs that no use writes or that are of another kind, and uses that lack one."""
        for use in self.uses.values():
            for key, source in use.inputs.items():
                kind = use.step.port_of(key).kind
                outputs = self._outputs(lambda port, kind=kind: port.kind == kind)  # type: ignore[misc]
                refuse_unknown(source, outputs, f"{self.where}: {STAGES}.{use.name}: {key} cannot be")
            for port in use.step.inputs:
                if not port.optional and not port.keys(use.inputs):
                    raise self.refuse(use.name, f"it needs `{port.name}`: {port.help}")

    def in_order(self) -> tuple[Use, ...]:
        """The uses in the listed order, but each after those that it reads. Raises `InputError` for a cycle."""
        left, found = dict(self.uses), list[Use]()
        while left:
            ready = next((use for use in left.values() if not set(use.read_from) & left.keys()), None)
            if ready is None:
                raise InputError(f"{self.where}: {STAGES}: {_circle(left)} form a cycle; break it")
            found.append(left.pop(ready.name))
        return tuple(_by_port(use) if use.step_name in (SELECT, EVALUATE) else use for use in found)


def _by_port(use: Use) -> Use:
    """The use with its inputs in the order of its ports, as people read them in a command."""
    return replace(use, inputs={key: use.inputs[key] for port in use.step.inputs for key in port.keys(use.inputs)})


def _circle(uses: Mapping[str, Use]) -> str:
    """The names of uses that form a cycle; each of `uses` reads another of them."""
    path = [next(iter(uses))]
    while path[-1] not in path[:-1]:
        path.append(next(name for name in uses[path[-1]].read_from if name in uses))
    return " ← ".join(path[path.index(path[-1]) :])
