"""The pipeline `zero-shot`: `stillhouse zero-shot` on a cluster.

The task `plan` checks all parameters, the retrievers and the folders before the task `zero_shot` starts.
"""

from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from stillhouse.core.config import field_types
from stillhouse.core.setting_kinds import form_type
from stillhouse.kubeflow.pipelines.interface import config_inputs, make_pipeline
from stillhouse.kubeflow.pipelines.placement_table import PlacementTable
from stillhouse.kubeflow.pipelines.stage_component import written
from stillhouse.kubeflow.pipelines.tasks import Pods
from stillhouse.kubeflow.pods.zero_shot import NAME, Config

DESCRIPTION = "Evaluates retrievers and BM25 on many corpora that they were not trained on."
MODULE = "stillhouse.kubeflow.pods.zero_shot"
OUTPUTS = ("zero_shot: Output[Dataset]", "metrics: Output[Metrics]", "html: Output[HTML]")


def build_zero_shot(table: PlacementTable | None = None) -> BaseComponent:
    """Build the pipeline."""
    kinds = field_types(Config)
    declared = [f"{name}: {form_type(kind).__name__}" for name, kind in kinds.items()]
    check = written("plan_zero_shot", declared, MODULE, "check_corpora")
    measure = written("measure_zero_shot", ["run_id: str", *declared, *OUTPUTS], MODULE, "run_zero_shot")

    def body(given: dict[str, Any], pods: Pods) -> None:
        values = {name: given[name] for name in kinds}
        plan = pods.place(check(**values), "check", "plan")
        measured = measure(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, **values)
        pods.place_steps(measured.after(plan), "zero_shot", ["index"], 1)

    return make_pipeline(NAME, DESCRIPTION, config_inputs(Config), table, body)
