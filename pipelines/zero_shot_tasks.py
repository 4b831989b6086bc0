# No `from __future__ import annotations` here: kfp reads the types of the signatures as they stand.
"""The tasks of the pipeline `zero-shot`."""

from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Markdown, Metrics, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def plan_zero_shot(
    corpora: str,
    retrievers: str,
    bm25: bool,
    baseline: str,
    measures: str,
    depth: int,
    max_queries: int,
    max_rejected: float,
    query_length: int,
    passage_length: int,
    bootstrap_samples: int,
    randomisation_samples: int,
    seed: int,
    title: str,
) -> list:
    """Refuses parameters that are out of range, and lists the corpora."""
    from stillhouse.surfaces.zero_shot_run import plan_corpora

    return plan_corpora(locals())


@dsl.component(base_image=image(), install_kfp_package=False)
def measure_corpus(
    corpus: str,
    retrievers: str,
    bm25: bool,
    measures: str,
    depth: int,
    max_queries: int,
    max_rejected: float,
    query_length: int,
    passage_length: int,
    measured: Output[Dataset],
):
    """Reads one corpus and searches it with every retriever.

    Args:
        corpus: the folder.
        measured: the corpus and its runs, or why it failed.
    """
    from stillhouse.surfaces.zero_shot_run import measure_corpus

    measure_corpus(corpus, locals(), measured.path)


@dsl.component(base_image=image(), install_kfp_package=False)
def gather_zero_shot(
    corpora: str,
    retrievers: str,
    bm25: bool,
    baseline: str,
    measures: str,
    depth: int,
    bootstrap_samples: int,
    randomisation_samples: int,
    seed: int,
    title: str,
    parts: Input[list[Dataset]],
    zero_shot: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    summary: Output[Markdown],
):
    """Measures all corpora together and writes one page.

    Args:
        parts: the corpora and their runs.
        zero_shot: figures, intervals, tests and the page.
        metrics: averages over the corpora.
        html: the page.
        summary: the averages, as a table.
    """
    from pathlib import Path

    from stillhouse.steps.execute import write_metrics
    from stillhouse.surfaces.zero_shot_run import gather

    figures = gather(locals(), [part.path for part in parts], zero_shot.path, html.path, summary.path)
    for name, value in figures.items():
        metrics.log_metric(name, value)
    write_metrics(Path(metrics.path), figures)
