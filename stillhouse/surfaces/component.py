"""What a Kubeflow component's body calls: parameters become settings, artifacts become folders.

Nothing of kfp is imported; its artifacts are known here by the attributes that are used.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from stillhouse.config import build, field_types
from stillhouse.errors import ValidationFailed
from stillhouse.steps.execute import execute, write_metrics
from stillhouse.steps.registry import find_step
from stillhouse.steps.spec import Report, Step
from stillhouse.versions.lineage import lineage

METRICS = "metrics"
PAGE = "html"
PAGES = frozenset({"validate", "evaluate"})
"""Steps whose report is a page that Kubeflow shows."""


class KubeflowArtifact(Protocol):
    """The part of a `kfp.dsl.Artifact` that is used; `Metrics` has `log_metric` beside it."""

    path: str
    metadata: dict[str, Any]


def run_component(step_name: str, values: Mapping[str, Any]) -> None:
    """Runs a step with a component's arguments: its input and output artifacts, `metrics`, `html` and its settings.

    Every output artifact gets its lineage as metadata (`stillhouse.versions.lineage`), so that a run can be tied to the
    same artifact elsewhere. Figures are logged for Kubeflow and written to the metrics artifact as JSON.
    """
    step = find_step(step_name)
    settings = {name: values[name] for name in field_types(step.config)}
    config: Any = build(step.config, settings, f"component {step.identifier}")
    inputs = {port.name: Path(values[port.name].path) for port in step.inputs if values[port.name] is not None}
    outputs = {port.name: Path(values[port.name].path) for port in step.outputs}
    try:
        publish(step, execute(step, config, inputs, outputs), outputs, values)
    except ValidationFailed as failure:
        # The page is there to show why the pipeline stops here.
        assert failure.report is not None
        publish(step, failure.report, outputs, values)
        raise


def publish(step: Step, report: Report, outputs: Mapping[str, Path], values: Mapping[str, Any]) -> None:
    """Hands a step's outputs over to Kubeflow: digests as metadata, figures, and the page of a step that has one."""
    for port in step.outputs:
        artifact: KubeflowArtifact = values[port.name]
        artifact.metadata |= lineage(outputs[port.name])
    metrics = values[METRICS]
    for name, value in report.metrics.items():
        metrics.log_metric(name, value)
    # Kubeflow keeps logged figures as metadata only; its local cache takes an artifact without a file for missing.
    write_metrics(Path(metrics.path), report.metrics)
    if step.name in PAGES:
        assert report.html, f"step '{step.name}' names no page in its report"
        page = Path(values[PAGE].path)
        page.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(outputs[step.outputs[0].name] / report.html, page)
