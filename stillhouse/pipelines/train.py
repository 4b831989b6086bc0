"""The whole run as a Kubeflow pipeline: one task for each of its stages, with the settings of a recipe.

A recipe, including its `stages`, is fixed when the pipeline is compiled, and every setting is visible on its task. The
few settings that users change when they start a run from the user interface are parameters of the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.kubernetes.pods.run_parameters import (
    SETTINGS,
    SETTINGS_HELP,
    TRAIN,
    RunParameter,
    filled,
    train_parameters,
    value_of,
)
from stillhouse.kubernetes.pods.task import as_json
from stillhouse.pipelines.control import check_train
from stillhouse.pipelines.interface import PipelineInput, make_pipeline
from stillhouse.pipelines.placement_table import PlacementTable
from stillhouse.pipelines.tasks import Pods, add_task
from stillhouse.releases.refresh.graph import released_of
from stillhouse.setting_kinds import as_form
from stillhouse.workflow.graph import graph_of
from stillhouse.workflow.recipes import Recipe, configs
from stillhouse.workflow.tasks import tasks_of

NAME = "train"
DESCRIPTION = "From a corpus to a distilled dense retriever, its index and its evaluation."


def build_pipeline(
    recipe: Recipe, where: str = "recipe", table: PlacementTable | None = None, shards: int = 0
) -> BaseComponent:
    """The pipeline of a recipe. Raises `InputError` for an unknown or ill-typed section or setting.

    `table` places its tasks; without one they run on this machine. `shards` is the number of parts in which a corpus
    is encoded; it overrides the table.
    """
    settings, uses = configs(recipe, where), graph_of(recipe, where)
    tasks = tasks_of(uses, wanted=released_of(uses).values())
    parameters = train_parameters(uses)
    pairs = filled(parameters, settings)
    # The check covers every parameter of a whole run; the ones that this run does not use keep their defaults.
    unasked = {name: parameter.default for name, parameter in TRAIN.items() if name not in parameters}

    def check(given: dict[str, Any]) -> PipelineTask:
        fields = {name: given[name] for name in [*parameters, SETTINGS]}
        return check_train(wanted="", recipe=as_json(recipe), **unasked, **fields)

    def body(given: dict[str, Any], pods: Pods) -> None:
        pods = replace(pods, recipe=recipe)
        chosen = {pair: name for name, members in pairs.items() for pair in members}
        made: dict[str, Any] = {}
        for task in tasks:
            there = add_task(task, settings, chosen, made, pods)
            if not task.inputs:
                there.after(pods.look)

    inputs = [*pipeline_inputs(parameters, settings), PipelineInput(SETTINGS, str, "", SETTINGS_HELP)]
    return make_pipeline(NAME, DESCRIPTION, inputs, table, body, shards, check)


def pipeline_inputs(parameters: Mapping[str, RunParameter], settings: Mapping[str, Any]) -> list[PipelineInput]:
    """The parameters of a pipeline, with defaults from a recipe."""
    return [
        PipelineInput(
            name, parameter.kind, as_form(value_of(settings, parameter.fills[0]), parameter.hint), parameter.help
        )
        for name, parameter in parameters.items()
    ]
