"""The graph of one variant: the systems to measure, and how to derive the variant's graph from the recipe's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stillhouse.core.config import field_types, refuse_unknown
from stillhouse.core.errors import InputError
from stillhouse.experiments.comparison.sweep import Sweep
from stillhouse.pipeline.graph import PRETRAINED, PRETRAINING, STAGES, START, Use
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


def systems(graph: Iterable[Use]) -> dict[str, str]:
    """The systems that a comparison can measure: the runs that the recipe evaluates, each as `use/output`.

    The retriever 1 without pre-training is not one of them: a variant without pre-training is this retriever, with the
    settings and seeds of the variants that it is compared with.
    """
    [inputs] = [use.inputs for use in graph if use.name == EVALUATION]
    return {name: run for name, run in named(inputs, RUN).items() if name != UNPRETRAINED}


def seeded(uses: Iterable[Use]) -> list[str]:
    """The uses that get a comparison's seed: pre-training and everything after it; earlier uses stay the same."""
    uses = list(uses)
    after = below({PRETRAINING, *(use.name for use in uses if use.step_name in TRAININGS)}, uses)
    return [
        use.name
        for use in uses
        if use.name in after and "seed" in field_types(use.step.config) and use.name != EVALUATION
    ]


def rewired(graph: Sequence[Use], inputs: Mapping[str, str], where: str) -> Sequence[Use]:
    """The graph with other inputs, `use.port` -> `use/output`, as a recipe's section `stages` changes them.

    Raises `InputError` for an unknown input, and for an output that no use makes or that has another kind.
    """
    rows: dict[str, dict[str, str]] = {}
    for key, source in inputs.items():
        use, _, port = key.partition(".")
        if use not in {known.name for known in graph}:
            raise InputError(f"{where}: there is no input {key!r}; write STEP.INPUT, as in reranker.init")
        rows.setdefault(use, {})[port] = source
    return changed(graph, rows, where)


def unpretrained(use: Use) -> Use:
    """The use with the initial model in place of the pre-trained encoder."""
    return replace(use, inputs={port: START if source == ENCODER else source for port, source in use.inputs.items()})


def training(name: str, graph: Sequence[Use], sweep: Sweep) -> str:
    """The name of a training whose held-out loss a sweep reports. Raises `InputError` for an unknown training."""
    trainings = [use.name for use in graph if is_training(use)]
    refuse_unknown(name, trainings, f"sweep {sweep.name}: losses: there is no training")
    return name


def evaluation(system: str, run: str, pretrained: bool, uses: Iterable[Use]) -> Use:
    """The evaluation of one system, with the loss curves of the trainings among `uses`, those that its run needs."""
    name = system if pretrained or system != "retriever_1" else UNPRETRAINED
    curves = {f"{CURVES}/{use.name}": f"{use.name}/{CURVES}" for use in uses if is_training(use)}
    inputs = {"corpus": "ingest/corpus", f"{RUN}/{name}": run} | curves
    return Use(EVALUATION, EVALUATION, inputs, stage="evaluation")


def is_training(use: Use) -> bool:
    """Whether a use writes loss curves."""
    return any(port.name == CURVES for port in use.step.outputs)


def below(names: Iterable[str], uses: Iterable[Use]) -> set[str]:
    """The named uses and all uses that depend on them, directly or indirectly."""
    found = set(names)
    for use in uses:
        if found & set(use.read_from):
            found.add(use.name)
    return found
