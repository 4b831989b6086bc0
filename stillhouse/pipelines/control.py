# No `from __future__ import annotations` here: kfp reads the signatures' types directly.
"""The first and the last task of a run.

The first refuses bad parameters and missing cluster resources before long tasks start. The last reports how the run
ended.
"""

from kfp import dsl
from kfp.dsl import Markdown, Metrics, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def check_cluster(wanted: str):
    """Refuses a run whose pods would wait in vain for a GPU type, a claim, a secret or a queue.

    Args:
        wanted: what the run's pods need from the cluster, as JSON.
    """
    from stillhouse.kubernetes.pods.run_control import refuse_missing

    refuse_missing(wanted)


@dsl.component(base_image=image(), install_kfp_package=False)
def check_train(
    wanted: str,
    recipe: str,
    settings: str,
    source: str,
    queries: str,
    test_queries: str,
    model: str,
    learning_rate: float,
    training_steps: str,
    seed: int,
):
    """Refuses parameters of `train` that are out of range, and a run that the cluster cannot serve."""
    from stillhouse.kubernetes.pods.run_control import refuse_run

    refuse_run("train", locals())


@dsl.component(base_image=image(), install_kfp_package=False)
def check_compare_objectives(wanted: str, source: str, queries: str, test_queries: str, model: str):
    """Refuses parameters of `compare-objectives` out of range, and a run that the cluster cannot serve."""
    from stillhouse.kubernetes.pods.run_control import refuse_run

    refuse_run("compare-objectives", locals())


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
