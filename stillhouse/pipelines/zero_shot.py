"""`stillhouse zero-shot` as a Kubeflow pipeline: one task that measures every corpus and writes one page."""

from __future__ import annotations

from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from stillhouse.config import field_types
from stillhouse.kubernetes.pods.zero_shot import Config
from stillhouse.pipelines.interface import config_inputs, make_pipeline
from stillhouse.pipelines.placement_table import PlacementTable
from stillhouse.pipelines.tasks import Pods
from stillhouse.pipelines.zero_shot_tasks import measure_zero_shot, plan_zero_shot

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
