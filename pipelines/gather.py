# No `from __future__ import annotations` here: kfp reads the types of the signature as they stand.
"""The last task of a comparison: the loops' evaluations become one table and one page."""

from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Metrics, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def gather_comparison(
    sweep: str,
    reference: Input[Dataset],
    comparison: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    evaluations: Input[list[Dataset]] = None,
    curves: Input[list[Dataset]] = None,
    unpretrained_evaluations: Input[list[Dataset]] = None,
):
    """Makes one table and one page of the loops' evaluations."""
    from pathlib import Path

    from stillhouse.steps.execute import write_metrics
    from stillhouse.surfaces.compare_component import gather

    found = [*(evaluations or []), *(unpretrained_evaluations or [])]
    figures = gather(
        sweep,
        [Path(artifact.path) for artifact in found],
        [Path(artifact.path) for artifact in curves or []],
        Path(reference.path),
        Path(comparison.path),
        Path(html.path),
    )
    for name, value in figures.items():
        metrics.log_metric(name, value)
    write_metrics(Path(metrics.path), figures)
