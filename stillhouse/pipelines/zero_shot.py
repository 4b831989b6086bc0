# No `from __future__ import annotations` here: kfp reads the signatures' types directly.
"""`stillhouse zero-shot` as a Kubeflow pipeline: one task that measures every corpus and writes one page."""

from typing import Any

from kfp import dsl
from kfp.dsl import HTML, Dataset, Markdown, Metrics, Output
from kfp.dsl.base_component import BaseComponent

from stillhouse.config import field_types
from stillhouse.kubernetes.pods.zero_shot import Config
from stillhouse.pipelines.image import image
from stillhouse.pipelines.interface import config_inputs, make_pipeline
from stillhouse.pipelines.placement_table import PlacementTable
from stillhouse.pipelines.tasks import Pods

NAME = "zero-shot"
DESCRIPTION = "Retrievers and BM25 on many corpora that they were not trained on."


def build_zero_shot(table: PlacementTable | None = None) -> BaseComponent:
    """The pipeline. `table` places its tasks; without one they run on this machine."""
    kinds = field_types(Config)

    def body(given: dict[str, Any], pods: Pods) -> None:
        def arguments(component: BaseComponent) -> dict[str, Any]:
            return {name: given[name] for name in component.component_spec.inputs or {} if name in kinds}

        # Retried once, since corpora and models may be on a network.
        plan = pods.place_first(plan_zero_shot(**arguments(plan_zero_shot)), "check", "plan", retries=1)
        measured = measure_zero_shot(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, **arguments(measure_zero_shot))
        pods.place_divided(measured.after(plan), "index", "zero_shot", "zero-shot")

    return make_pipeline(NAME, DESCRIPTION, config_inputs(Config), table, body)


@dsl.component(base_image=image(), install_kfp_package=False)
def plan_zero_shot(
    corpora: str,
    retrievers: str,
    hybrids: str,
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
    hybrids: str,
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
