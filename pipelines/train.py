"""The whole run as a Kubeflow pipeline: one task a use of the graph, its settings those of a recipe.

A recipe, its `stages` too, is fixed when the pipeline is compiled and every setting is visible on its task. The few
that a person who starts a run from the user interface wants to change are parameters of the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from pipelines.check import check_train
from pipelines.interface import PipelineInput, make_pipeline
from pipelines.placement_table import PlacementTable
from pipelines.tasks import Pods, make_task
from stillhouse.config import field_types
from stillhouse.graph import Use, graph_of
from stillhouse.surfaces.recipes import Recipe, configs
from stillhouse.surfaces.run_parameters import TRAIN, RunParameter, filled, train_parameters, value_of

NAME = "train"
DESCRIPTION = "From a corpus to a distilled dense retriever, its index and its evaluation."


def build_pipeline(
    recipe: Recipe, where: str = "recipe", table: PlacementTable | None = None, shards: int = 0
) -> BaseComponent:
    """The pipeline of a recipe. Raises `InputError` for a section or setting that is unknown or ill-typed.

    `table` says where its tasks run; without one they run on this machine. `shards` is in how many parts a corpus is
    encoded, where the table is not to say it.
    """
    settings, uses = configs(recipe, where), graph_of(recipe, where)
    parameters = train_parameters(uses)
    pairs = filled(parameters, settings)
    # The check looks at every parameter of a whole run; what this one has no use for is as it is by default.
    unasked = {name: parameter.default for name, parameter in TRAIN.items() if name not in parameters}

    def body(given: dict[str, Any], pods: Pods) -> None:
        pods = replace(pods, recipe=recipe)
        chosen = {pair: given[name] for name, members in pairs.items() for pair in members}
        asked = check_train(**unasked, **{name: given[name] for name in parameters})
        check = pods.place_first(asked, "check", "check_parameters", retries=0)
        tasks: dict[str, PipelineTask] = {}
        for use in uses:
            task = make_task(use, _settings(use, settings[use.name], chosen), tasks, pods)
            tasks[use.name] = task if use.inputs else task.after(check)

    return make_pipeline(NAME, DESCRIPTION, pipeline_inputs(parameters, settings), table, body, shards)


def pipeline_inputs(parameters: Mapping[str, RunParameter], settings: Mapping[str, Any]) -> list[PipelineInput]:
    """The parameters of a pipeline with the defaults that a recipe gives them."""
    return [
        PipelineInput(name, parameter.kind, value_of(settings, parameter.fills[0]), parameter.help)
        for name, parameter in parameters.items()
    ]


def _settings(use: Use, config: Any, chosen: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    return {field: chosen.get((use.name, field), getattr(config, field)) for field in field_types(use.step.config)}
