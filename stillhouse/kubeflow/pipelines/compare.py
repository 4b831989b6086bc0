"""A comparison as a Kubeflow pipeline: the stages that all variants share, then one task for all variants and seeds.

A loop would create too many pods for Argo, so one task does its runs one after the other, or its nodes do them in
parallel.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kfp.dsl.base_component import BaseComponent

from stillhouse.core.own_files import own_file
from stillhouse.experiments.comparison.plan import Plan
from stillhouse.kubeflow.pipelines.control import CHECK, check_run
from stillhouse.kubeflow.pipelines.interface import make_pipeline
from stillhouse.kubeflow.pipelines.ir import compile_small
from stillhouse.kubeflow.pipelines.placement_table import DEFAULT_TABLE, PlacementTable, find_table
from stillhouse.kubeflow.pipelines.stage_component import OUTPUTS, kind_of, written
from stillhouse.kubeflow.pipelines.tasks import Pods, add_stages, as_json
from stillhouse.kubeflow.pipelines.train import pipeline_inputs
from stillhouse.kubeflow.pods.compare import shared_stages, shared_steps
from stillhouse.kubeflow.pods.stage import FOLDER, RECIPE
from stillhouse.pipeline.graph_steps import GraphStep, Stage

NAME = "compare-objectives"
LABEL = "comparison"
MODULE = "stillhouse.kubeflow.pods.compare"


def compile_comparison(plan: Plan, output: Path) -> None:
    """Writes the pipeline of a plan as IR YAML, the format that Kubeflow reads, for pods without GPUs."""
    compiled = compile_small(build_comparison(plan, find_table(DEFAULT_TABLE)))
    with own_file(output) as file:
        file.write_text(compiled.as_ir(), encoding="utf-8")


def build_comparison(plan: Plan, table: PlacementTable | None = None) -> BaseComponent:
    """The pipeline of a plan."""
    content = json.dumps({"name": plan.sweep.name} | plan.sweep.plain(), ensure_ascii=False)
    shared = shared_stages(plan)
    stages = [stage for stage, _ in shared]
    settings = {name: config for _, of in shared for name, config in of.items()}
    inputs = pipeline_inputs(plan.recipe, RECIPE, settings)

    def body(given: dict[str, Any], pods: Pods) -> None:
        kinds = {entry.name: entry.kind for entry in inputs}
        check = check_run(NAME, as_json(plan.recipe), kinds, given, stages, sweep=content)
        pods.first = pods.place(check, CHECK, "check", waits=False)
        made = add_stages(stages, check, pods, MODULE, "run_shared")
        folders = {stage.name: made[stage.name].outputs[FOLDER] for stage in stages}
        there = variants_component(stages)(recipe=check.outputs[RECIPE], **folders)
        pods.place_steps(there, LABEL, list(dict.fromkeys(step.kind for step in varied_steps(plan))), 1, LABEL)

    description = f"Compares pre-training objectives: {plan.sweep.title or plan.sweep.name}."
    return make_pipeline(NAME, description, inputs, table, body)


def varied_steps(plan: Plan) -> list[GraphStep]:
    """The steps that some run has as its own."""
    shared = {step.name for step in shared_steps(plan)}
    return list({step.name: step for job in plan.jobs for step in job.steps if step.name not in shared}.values())


def variants_component(stages: Sequence[Stage]) -> BaseComponent:
    """The component that runs the variants of a comparison on the shared stages, and writes its page."""
    declared = [f"{RECIPE}: Input[Dataset]", *(f"{stage.name}: Input[{kind_of(stage)}]" for stage in stages)]
    return written("compare_variants", [*declared, "comparison: Output[Dataset]", *OUTPUTS], MODULE, "run_variants")
