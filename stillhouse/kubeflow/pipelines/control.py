"""The first and the last task of a run.

The first refuses bad parameters before long tasks start, and writes for the others the recipe of the run and which
nodes they start. The last reports how the run ended. Neither has a volume or waits in a queue, so that they start even
if something is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.kubeflow.pipelines.stage_component import written
from stillhouse.kubeflow.pipelines.tasks import PLANNED
from stillhouse.kubeflow.pods.run_control import TEXT
from stillhouse.kubeflow.pods.stage import NODES, RECIPE
from stillhouse.pipeline.graph_steps import Stage

MODULE = "stillhouse.kubeflow.pods.run_control"
CHECK, END = "check", "report-end"
"""The labels of their pods."""


def check_run(
    pipeline: str,
    recipe: str,
    kinds: Mapping[str, type],
    given: Mapping[str, Any],
    stages: Sequence[Stage],
    **more: str,
) -> PipelineTask:
    """The first task of a run of a recipe, which is JSON. `kinds` are the types of the parameters, `given` their
    values; `more` are further arguments. Its outputs are the recipe of the run and a digest for each of its stages."""
    declared = [f"{name}: str" for name in ("run_id", TEXT, NODES, *more)]
    declared += [f"{name}: {kind.__name__}" for name, kind in kinds.items()]
    declared += [f"{RECIPE}: Output[Dataset]", *(f"{PLANNED.format(stage.name)}: OutputPath(str)" for stage in stages)]
    component = written("check", declared, MODULE, "check_run", pipeline)
    fixed = {"run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER, TEXT: recipe, NODES: ""}
    return component(**fixed, **more, **{name: given[name] for name in kinds})


def report_end() -> BaseComponent:
    """Reports how the run ended, whether it succeeded or not."""
    declared = ["pipeline: str", "run: str", "status: PipelineTaskFinalStatus"]
    declared += ["summary: Output[Markdown]", "metrics: Output[Metrics]"]
    return written("report_end", declared, MODULE, "end_run")
