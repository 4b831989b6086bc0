# No `from __future__ import annotations` here: kfp reads the signatures' types directly.
"""The refresh as a Kubeflow pipeline: it reads the corpus again, and the change decides which level to climb.

One task runs the steps of the level, whichever it is. If nothing changed, that task and the promotion are skipped.
"""

from collections.abc import Sequence
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.core.config import field_types
from stillhouse.kubeflow.pipelines.interface import config_inputs, make_pipeline
from stillhouse.kubeflow.pipelines.placement_table import PlacementTable
from stillhouse.kubeflow.pipelines.stage_component import kind_of, written
from stillhouse.kubeflow.pipelines.tasks import Pods, add_stage, as_json
from stillhouse.kubeflow.pods.refresh import PLANNED, REFRESHED, RELEASED, SUMMARY
from stillhouse.kubeflow.pods.run_control import TEXT
from stillhouse.kubeflow.pods.stage import FOLDER, METRICS, NODES, RECIPE
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.graph_steps import Stage, stages_of
from stillhouse.pipeline.recipes import Recipe, configs
from stillhouse.releases.refresh.graph import CHALLENGER, Levels, before
from stillhouse.releases.refresh.plan import SOURCE, Level, Parameters

NAME = "refresh"
DESCRIPTION = "Updates the released retriever to its corpus, with as little work as the change requires."
MODULE = "stillhouse.kubeflow.pods.refresh"
DECIDED = (f"{PLANNED}: Input[Dataset]", f"{RELEASED}: Input[Model]")


def build_refresh(recipe: Recipe, where: str = "recipe", table: PlacementTable | None = None) -> BaseComponent:
    """The pipeline of a recipe, whose settings apply to every step of every level.

    `table` places its tasks; without one they run on this machine. Raises `InputError` for an unknown or ill-typed
    section or setting.
    """
    settings, whole = configs(recipe, where), graph_of(recipe, where)
    levels, first = Levels.of(whole), stages_of(before(whole))
    kinds = field_types(Parameters)

    def body(given: dict[str, Any], pods: Pods) -> None:
        asked = {name: given[name] for name in kinds}
        check = check_component(kinds)(**{TEXT: as_json(recipe), NODES: ""}, **asked)
        pods.first = pods.place(check, "check-refresh", "check_parameters")
        made: dict[str, PipelineTask] = {}
        for stage in first:
            task = add_stage(stage, first, made, check, (MODULE, "run_first_stage"))
            made[stage.name] = pods.place_steps(task, stage.name, [step.kind for step in stage.steps])
        corpus = {stage.name: made[stage.name].outputs[FOLDER] for stage in first}
        planned = plan_component(first)(**{RECIPE: check.outputs[RECIPE]}, **corpus)
        pods.place(planned, "plan-refresh", "plan")
        # kfp's local runner only finds a condition's value under the name Output, that of a returned value.
        with dsl.If(planned.outputs["Output"] != str(Level.NOTHING), name="change"):
            known = {PLANNED: planned.outputs[REFRESHED], RELEASED: planned.outputs[RELEASED]}
            there = add_stage(
                levels.every_stage(), first, made, check, (MODULE, "run_refresh_stage"), known=known, more=DECIDED
            )
            pods.place_steps(there, CHALLENGER, [step.kind for step in levels.every_stage().steps])
            outputs = {PLANNED: planned.outputs[REFRESHED], CHALLENGER: there.outputs[FOLDER]}
            done = release_component(first)(**{RECIPE: check.outputs[RECIPE]}, **outputs, **corpus)
            pods.place(done, "release-refresh", "promote")

    inputs = config_inputs(Parameters, {name: getattr(settings["ingest"], name) or "" for name in SOURCE})
    return make_pipeline(NAME, DESCRIPTION, inputs, table, body)


def check_component(kinds: dict[str, Any]) -> BaseComponent:
    """Refuses parameters of `refresh` that are out of range, and repositories that cannot be read."""
    declared = [f"{TEXT}: str", f"{NODES}: str", *(f"{name}: {kind.__name__}" for name, kind in kinds.items())]
    return written("check_refresh", [*declared, f"{RECIPE}: Output[Dataset]"], MODULE, "run_check")


def plan_component(first: Sequence[Stage]) -> BaseComponent:
    """Compares the corpus with the released one, and returns the level: how far the refresh goes."""
    declared = [f"{RECIPE}: Input[Dataset]", *(f"{stage.name}: Input[{kind_of(stage)}]" for stage in first)]
    declared += [f"{RELEASED}: Output[Model]", f"{REFRESHED}: Output[Dataset]", f"{SUMMARY}: Output[Markdown]"]
    return written("plan_refresh", declared, MODULE, "run_plan", returns="str")


def release_component(first: Sequence[Stage]) -> BaseComponent:
    """Releases the challenger, unless it is worse than the release in use: pushes data, commits, tags."""
    declared = [f"{RECIPE}: Input[Dataset]", f"{PLANNED}: Input[Dataset]", f"{CHALLENGER}: Input[Model]"]
    declared += [f"{stage.name}: Input[{kind_of(stage)}]" for stage in first]
    declared += [f"{REFRESHED}: Output[Dataset]", f"{SUMMARY}: Output[Markdown]", f"{METRICS}: Output[Metrics]"]
    return written("release_refresh", declared, MODULE, "run_release")
