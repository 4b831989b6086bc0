"""A whole run as a Kubeflow pipeline: one task for each stage of a recipe.

A recipe, including its `stages`, is fixed when the pipeline is compiled. The few settings that users change when they
start a run from the user interface are parameters of the pipeline; all others have one field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.core.setting_kinds import as_form
from stillhouse.kubeflow.pipelines.control import check_run
from stillhouse.kubeflow.pipelines.interface import PipelineInput, make_pipeline
from stillhouse.kubeflow.pipelines.placement_table import PlacementTable
from stillhouse.kubeflow.pipelines.tasks import Pods, add_stages, as_json
from stillhouse.kubeflow.pods.run_parameters import (
    SETTINGS,
    SETTINGS_HELP,
    RunParameter,
    train_parameters,
    value_of,
)
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.recipes import Recipe, configs
from stillhouse.pipeline.uses import stages_of

NAME = "train"
DESCRIPTION = "From a corpus to a distilled dense retriever, its index and its evaluation."


def build_pipeline(recipe: Recipe, where: str = "recipe", table: PlacementTable | None = None) -> BaseComponent:
    """The pipeline of a recipe. Raises `InputError` for an unknown or ill-typed section or setting.

    `table` places its tasks; without one they run on this machine. `shards` is the number of parts in which a corpus
    is encoded; it overrides the table.
    """
    settings, uses = configs(recipe, where), graph_of(recipe, where)
    stages, parameters = stages_of(uses), train_parameters(uses)
    inputs = [*pipeline_inputs(parameters, settings), PipelineInput(SETTINGS, str, "", SETTINGS_HELP)]

    def check(given: dict[str, Any]) -> PipelineTask:
        return check_run(NAME, as_json(recipe), {entry.name: entry.kind for entry in inputs}, given, stages)

    def body(given: dict[str, Any], pods: Pods) -> None:
        assert pods.look
        add_stages(stages, pods.look, pods, "stillhouse.kubeflow.pods.stage")

    return make_pipeline(NAME, DESCRIPTION, inputs, table, body, check)


def pipeline_inputs(parameters: Mapping[str, RunParameter], settings: Mapping[str, Any]) -> list[PipelineInput]:
    """The parameters of a pipeline, with defaults from a recipe."""
    return [
        PipelineInput(
            name, parameter.kind, as_form(value_of(settings, parameter.fills[0]), parameter.hint), parameter.help
        )
        for name, parameter in parameters.items()
    ]
