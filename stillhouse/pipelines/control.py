# No `from __future__ import annotations` here: kfp reads the types of the signatures as they stand.
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
    """Says how the run ended, whether it succeeded or not.

    Args:
        pipeline: the pipeline's name.
        run: the run's name.
        status: what Kubeflow says of the run.
        summary: how it ended and what to do.
        metrics: 1 for a run that succeeded, 0 for one that did not; nothing where Kubeflow leaves it open.
    """
    from stillhouse.kubernetes.pods.run_control import report_end

    succeeded = report_end(pipeline, run, status.state, status.error_message, summary.path, metrics.path)
    if succeeded is not None:
        metrics.log_metric("succeeded", succeeded)
