# No `from __future__ import annotations` here: kfp reads the signatures' types directly.
"""The last task of every run."""

from kfp import dsl
from kfp.dsl import Markdown, Metrics, Output

from stillhouse.components.image import image


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

    succeeded = report_end(pipeline, run, status.state, status.error_message, summary.path, metrics.path)
    if succeeded is not None:
        metrics.log_metric("succeeded", succeeded)
