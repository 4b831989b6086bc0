# No `from __future__ import annotations` here: kfp reads the signatures' types directly.
"""The tasks of the pipeline `zero-shot`."""

from kfp import dsl
from kfp.dsl import HTML, Dataset, Markdown, Metrics, Output

from stillhouse.components.image import image


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
):
    """Refuses parameters out of range, and missing corpora and models."""
    from stillhouse.kubernetes.pods.zero_shot import check_corpora

    check_corpora(locals())


@dsl.component(base_image=image(), install_kfp_package=False)
def measure_zero_shot(
    run_id: str,
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
    zero_shot: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    summary: Output[Markdown],
):
    """Reads every corpus, searches it with every retriever, measures all together and writes one page.

    Args:
        run_id: the run's id.
        zero_shot: figures, intervals, tests and the page.
        metrics: averages over the corpora.
        html: the page.
        summary: the averages, as a table.
    """
    from stillhouse.kubernetes.pods.zero_shot import run_zero_shot

    run_zero_shot(locals())
