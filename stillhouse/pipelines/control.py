# No `from __future__ import annotations` here: kfp reads the signatures' types directly.
"""The first and the last task of a run.

The first refuses bad parameters and missing cluster resources before long tasks start, and writes the recipe of the run
for the others. The last reports how the run ended.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kfp import dsl
from kfp.dsl import Markdown, Metrics, Output
from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.kubernetes.pods.run_control import TEXT
from stillhouse.kubernetes.pods.stage import RECIPE
from stillhouse.pipelines.image import image
from stillhouse.pipelines.stage_component import written
from stillhouse.pipelines.tasks import plan_output
from stillhouse.workflow.uses import Stage


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
    component = written("check", declared, "stillhouse.kubernetes.pods.run_control", "check_run", call)
    fixed = {"wanted": "", "run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER, TEXT: recipe}
    return component(**fixed, **more, **{name: given[name] for name in kinds})


@dsl.component(base_image=image(), install_kfp_package=False)
def check_cluster(wanted: str):
    """Refuses a run whose pods would wait in vain for a GPU type, a claim, a secret or a queue.

    Args:
        wanted: what the run's pods need from the cluster, as JSON.
    """
    from stillhouse.kubernetes.pods.run_control import refuse_missing

    refuse_missing(wanted)


@dsl.component(base_image=image(), install_kfp_package=False)
def report_end(
    pipeline: str,
    run: str,
    status: dsl.PipelineTaskFinalStatus,
    summary: Output[Markdown],
    metrics: Output[Metrics],
):
    """Reports how the run ended, whether it succeeded or not.

    Args:
        pipeline: the pipeline's name.
        run: the run's name.
        status: Kubeflow's status of the run.
        summary: how it ended and what to do.
        metrics: 1 if the run succeeded, 0 if it did not; empty if Kubeflow leaves it open.
    """
    from stillhouse.kubernetes.pods.run_control import report_end

    workflow = status.pipeline_job_resource_name
    succeeded = report_end(pipeline, run, status.state, status.error_message, summary.path, metrics.path, workflow)
    if succeeded is not None:
        metrics.log_metric("succeeded", succeeded)
