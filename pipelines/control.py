# No `from __future__ import annotations` here: kfp reads the types of the signatures as they stand.
"""Small components that are no steps: they check, stop, gather and report."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Markdown, Metrics, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def gate(validation: Input[Dataset]):
    """Stops the run when the corpus did not pass its validation.

    Args:
        validation: the verdict and the report.
    """
    from stillhouse.surfaces.run_control import stop_unless_passed

    stop_unless_passed(validation.path)


@dsl.component(base_image=image(), install_kfp_package=False)
def gather_vectors(parts: Input[list[Dataset]], vectors: Output[Dataset]):
    """Puts the vectors of all shards into one folder.

    Args:
        parts: what `encode` wrote of each shard.
        vectors: one folder with a folder of each shard.
    """
    from stillhouse.surfaces.run_control import put_together

    put_together([part.path for part in parts], vectors.path)


@dsl.component(base_image=image(), install_kfp_package=False)
def list_items(items: str) -> list:
    """Lists what a loop runs over.

    Args:
        items: a JSON list.
    """
    import json

    return list(json.loads(items))


@dsl.component(base_image=image(), install_kfp_package=False)
def gather_counts(parts: Input[list[Dataset]], counts: Output[Dataset]):
    """Adds up the n-gram counts of all shards.

    Args:
        parts: what `count` wrote of each shard.
        counts: the counts of the whole corpus.
    """
    from stillhouse.surfaces.run_control import add_up_counts

    add_up_counts([part.path for part in parts], counts.path)


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
    from stillhouse.surfaces.run_control import tell_end

    succeeded = tell_end(pipeline, run, status.state, status.error_message, summary.path, metrics.path)
    if succeeded is not None:
        metrics.log_metric("succeeded", succeeded)
