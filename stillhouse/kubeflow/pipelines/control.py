"""The first and the last task of a run.

The first refuses bad parameters and missing cluster resources before long tasks start, and writes the recipe of the run
for the others. The last reports how the run ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.kubeflow.pipelines.stage_component import written
from stillhouse.kubeflow.pipelines.tasks import plan_output
from stillhouse.kubeflow.pods.run_control import TEXT
from stillhouse.kubeflow.pods.stage import RECIPE
from stillhouse.pipeline.uses import Stage

MODULE = "stillhouse.kubeflow.pods.run_control"


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
    declared = [f"{name}: str" for name in ("wanted", "run_id", TEXT, *more)]
    declared += [f"{name}: {kind.__name__}" for name, kind in kinds.items()]
    declared += [f"{RECIPE}: Output[Dataset]", *(f"{plan_output(stage.name)}: OutputPath(str)" for stage in stages)]
    call = f'"{pipeline}", locals()'
    component = written("check", declared, MODULE, "check_run", call)
    fixed = {"wanted": "", "run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER, TEXT: recipe}
    return component(**fixed, **more, **{name: given[name] for name in kinds})


def check_cluster() -> BaseComponent:
    """Refuses a run whose pods would wait in vain for a GPU type, a claim, a secret or a queue."""
    return written("check_cluster", ["wanted: str"], MODULE, "refuse_missing", "wanted")


def report_end() -> BaseComponent:
    """Reports how the run ended, whether it succeeded or not."""
    declared = ["pipeline: str", "run: str", "status: PipelineTaskFinalStatus"]
    declared += ["summary: Output[Markdown]", "metrics: Output[Metrics]"]
    return written("report_end", declared, MODULE, "end_run")
