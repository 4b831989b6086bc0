"""The graph of one variant: the systems to measure, and how to derive the variant's graph from the recipe's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stillhouse.core.config import field_types
from stillhouse.core.errors import InputError
from stillhouse.pipeline.graph import PRETRAINED, PRETRAINING, STAGES, START, GraphStep
from stillhouse.pipeline.recipes import Recipe
from stillhouse.pipeline.stages import changed
from stillhouse.pipeline.steps.spec import named

ENCODER = PRETRAINED["encoder"]
REFERENCES = {"bm25": "bm25/run", "zero_shot": "zero_shot_run/run"}
UNPRETRAINED = "retriever_1_unpretrained"
EVALUATION = "evaluate"
RUN, CURVES = "run", "curves"
TRAININGS = ("train-retriever", "train-reranker")


def with_stages(recipe: Recipe, stages: Mapping[str, Any]) -> Recipe:
    """The recipe with rows added to its section `stages`."""
    rows = {**(recipe.get(STAGES) or {}), **stages}
    return {**recipe, STAGES: rows} if rows else recipe


def systems(graph: Iterable[GraphStep]) -> dict[str, str]:
    """The systems that a comparison can measure: the runs that the recipe evaluates, each as `step/output`.

    The retriever 1 without pre-training is not one of them: a variant without pre-training is this retriever, with the
    settings and seeds of the variants that it is compared with.
    """
    [inputs] = [step.inputs for step in graph if step.name == EVALUATION]
    return {name: run for name, run in named(inputs, RUN).items() if name != UNPRETRAINED}


def seeded(steps: Iterable[GraphStep]) -> list[str]:
    """The steps that get a comparison's seed: pre-training and everything after it; earlier steps stay the same."""
    steps = list(steps)
    after = below({PRETRAINING, *(step.name for step in steps if step.kind in TRAININGS)}, steps)
    return [
        step.name
        for step in steps
        if step.name in after and "seed" in field_types(step.spec.config) and step.name != EVALUATION
    ]


def rewired(graph: Sequence[GraphStep], inputs: Mapping[str, str], where: str) -> Sequence[GraphStep]:
    """The graph with other inputs, `step.port` -> `step/output`, as a recipe's section `stages` changes them.

    Raises `InputError` for an unknown input, and for an output that no step makes or that has another kind.
    """
    rows: dict[str, dict[str, str]] = {}
    for key, source in inputs.items():
        step, _, port = key.partition(".")
        if step not in {known.name for known in graph}:
            raise InputError(f"{where}: there is no input {key!r}; write STEP.INPUT, as in reranker.init")
        rows.setdefault(step, {})[port] = source
    return changed(graph, rows, where)


def unpretrained(step: GraphStep) -> GraphStep:
    """The step with the initial model in place of the pre-trained encoder."""
    return replace(step, inputs={port: START if source == ENCODER else source for port, source in step.inputs.items()})


def evaluation(system: str, run: str, pretrained: bool, steps: Iterable[GraphStep]) -> GraphStep:
    """The evaluation of one system, with the loss curves of the trainings among `steps`, those that its run needs."""
    name = system if pretrained or system != "retriever_1" else UNPRETRAINED
    curves = {f"{CURVES}/{step.name}": f"{step.name}/{CURVES}" for step in steps if is_training(step)}
    inputs = {"corpus": "ingest/corpus", f"{RUN}/{name}": run} | curves
    return GraphStep(EVALUATION, EVALUATION, inputs, stage="evaluation")


def is_training(step: GraphStep) -> bool:
    """Whether a step writes loss curves."""
    return any(port.name == CURVES for port in step.spec.outputs)


def below(names: Iterable[str], steps: Iterable[GraphStep]) -> set[str]:
    """The named steps and all steps that depend on them, directly or indirectly."""
    found = set(names)
    for step in steps:
        if found & set(step.read_from):
            found.add(step.name)
    return found
