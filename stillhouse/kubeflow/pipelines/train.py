"""A whole run as a Kubeflow pipeline: one task for each stage of a recipe.

A recipe, including its `stages`, is fixed when the pipeline is compiled. The few settings that users change when they
start a run from the user interface are parameters of the pipeline; all others have one field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kfp.dsl.base_component import BaseComponent

from stillhouse.core.setting_kinds import as_form, form_type
from stillhouse.kubeflow.pipelines.control import CHECK, check_run
from stillhouse.kubeflow.pipelines.interface import PipelineInput, make_pipeline
from stillhouse.kubeflow.pipelines.placement_table import PlacementTable
from stillhouse.kubeflow.pipelines.tasks import Pods, add_stages, as_json
from stillhouse.kubeflow.pods.run_parameters import FORM, SETTINGS, SETTINGS_HELP, hint_of, parameters_of
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.graph_steps import stages_of
from stillhouse.pipeline.recipes import Recipe, configs

NAME = "train"
DESCRIPTION = "Turns a corpus into a distilled dense retriever, its index and its evaluation."


def build_pipeline(recipe: Recipe, where: str = "recipe", table: PlacementTable | None = None) -> BaseComponent:
    """The pipeline of a recipe. Raises `InputError` for an unknown or ill-typed section or setting.

    `table` places its tasks; without one they run on this machine.
    """
    settings, stages = configs(recipe, where), stages_of(graph_of(recipe, where))
    inputs = [*pipeline_inputs(recipe, where, settings), PipelineInput(SETTINGS, str, "", SETTINGS_HELP)]

    def body(given: dict[str, Any], pods: Pods) -> None:
        check = check_run(NAME, as_json(recipe), {entry.name: entry.kind for entry in inputs}, given, stages)
        pods.first = pods.place(check, CHECK, "check", waits=False)
        add_stages(stages, check, pods, "stillhouse.kubeflow.pods.stage")

    return make_pipeline(NAME, DESCRIPTION, inputs, table, body)


def pipeline_inputs(recipe: Recipe, where: str, settings: Mapping[str, Any]) -> list[PipelineInput]:
    """The parameters of a recipe's pipeline, with defaults from its settings by step."""
    hints = {name: (step, hint_of(step, name)) for name, step in parameters_of(recipe, where).items()}
    return [
        PipelineInput(name, form_type(hint), as_form(getattr(settings[step.name], name), hint), FORM[name][1])
        for name, (step, hint) in hints.items()
    ]
