"""What a Kubeflow component's body calls: parameters become settings, artifacts become folders.

Nothing of kfp is imported; its artifacts are known here by the attributes that are used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from stillhouse import interrupt
from stillhouse.config import build, field_types
from stillhouse.context import say
from stillhouse.errors import CRASH, CrashElsewhere, InputError, ValidationFailed, access_errors, is_full_disk
from stillhouse.kubernetes.pods.cached_step import CachedUse, through_run_cache
from stillhouse.kubernetes.pods.component_views import views_of, write_view
from stillhouse.kubernetes.pods.held_folders import held_folders
from stillhouse.kubernetes.pods.pod_preflight import check_pod
from stillhouse.kubernetes.pods.several_processes import execute_together, processes_for
from stillhouse.kubernetes.trainjob.settings import read_node_settings
from stillhouse.monitoring.watch import Watched, watch_task
from stillhouse.releases.lineage import lineage
from stillhouse.setting_kinds import from_component
from stillhouse.steps.execute import execute, write_metrics
from stillhouse.steps.registry import find_step
from stillhouse.steps.sharding import DIVIDED, SHARDS
from stillhouse.steps.spec import Paths, Report, Step
from stillhouse.terminal import warn

METRICS = "metrics"
SHARED_BY_HAND = ("vectors", "counts")
"""Inputs by which a recipe itself hands a step what others made; such a step shares its work with no nodes."""


class KubeflowArtifact(Protocol):
    """The part of a `kfp.dsl.Artifact` that is used; `Metrics` has `log_metric` beside it."""

    path: str
    metadata: dict[str, Any]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Ends the process as the command line does: bad input with its sentence and exit code, without a stack trace.

    So does a disk that is full, or a volume at its quota, which a person mends where the pod's placement is written.
    """
    try:
        with interrupt.ends_soon(), access_errors():
            yield
    except KeyboardInterrupt:  # of a run on this machine
        raise SystemExit(interrupt.exit_code()) from None
    except (InputError, ValidationFailed, CrashElsewhere) as error:
        warn(f"stillhouse: {error}")
        raise SystemExit(error.exit_code) from None
    except OSError as error:
        if not is_full_disk(error):
            raise
        where = f" ({error.filename})" if error.filename else ""
        remedy = "raise `scratch` in the placement, or free or enlarge the work volume; outputs are as they were"
        warn(f"stillhouse: {error.strerror}{where}; {remedy}")
        raise SystemExit(CRASH) from None


@contextmanager
def watched_task(name: str) -> Iterator[Watched]:
    """The same; and Prometheus gets how the task ended, where the environment asks for that."""
    with one_line_errors(), watch_task(name, say) as watched, access_errors():
        yield watched


def run_component(step_name: str, values: Mapping[str, Any]) -> None:
    """Runs a step with a component's arguments: its input and output artifacts, `metrics`, views and its settings.

    Every output artifact gets its lineage as metadata (`stillhouse.releases.lineage`), so that a run can be tied to the
    same artifact elsewhere. Figures are logged for Kubeflow and written to the
    metrics artifact as JSON.

    A corpus that does not pass ends no task here: Kubeflow would throw away the page that says why. Every step that is
    given the verdict refuses to work, and ends the run.
    """
    with watched_task(step_name) as watched:
        step = find_step(step_name)
        check_pod(step.parallel)
        settings = {name: from_component(values[name], hint, name) for name, hint in field_types(step.config).items()}
        config: Any = build(step.config, settings, f"component {step.identifier}")
        outputs = {port.name: Path(values[port.name].path) for port in step.outputs}
        report = run_step(step, config, given_folders(step, values), outputs, watched, None)
        publish(step, report, outputs, values)


def _part_of(step: Step, inputs: Paths) -> str:
    """The step that does one shard of this step's work; empty where the work is not to be divided."""
    part = DIVIDED.get(step.name, "")
    if not part or set(SHARED_BY_HAND) & inputs.keys():
        return ""
    # A fused teacher may have no cross-encoder, and then nothing that is worth a node.
    needed = {port.name for port in find_step(part).inputs if not port.optional}
    return part if needed <= inputs.keys() else ""


def run_step(
    step: Step, config: Any, inputs: Paths, outputs: Paths, watched: Watched, cached: CachedUse | None, task: str = ""
) -> Report:
    """Runs a step in a pod, on as many processes or nodes as the pod says, unless the run cache has what it makes.

    `cached` is the use and its section, for the run cache; `task` is the use's name where the pod runs several. A
    corpus that does not pass has its report too, with the fact `passed` as false.
    """

    def compute() -> Report:
        watched.computed = True
        part = _part_of(step, inputs)
        shared = read_node_settings(os.environ, part, sys.argv) if part else None
        if shared:
            from stillhouse.kubernetes.trainjob.shares import shared_work

            with shared_work(step, config, inputs, replace(shared, task=task or shared.task)) as shares:
                return execute(step, config, inputs, outputs, shares=shares)
        shards = int(os.environ.get(SHARDS) or 1) if part else 1
        if shards > 1:
            from stillhouse.kubernetes.trainjob.shares import shared_here

            with shared_here(step, config, inputs, shards) as shares:
                return execute(step, config, inputs, outputs, shares=shares)
        nodes = read_node_settings(os.environ, step.name, sys.argv)
        if nodes:
            from stillhouse.kubernetes.trainjob.launch import execute_on_nodes

            return execute_on_nodes(step, config, inputs, outputs, replace(nodes, task=task or nodes.task))
        number = processes_for(step)
        if number > 1:
            return execute_together(step, config, inputs, outputs, number)
        return execute(step, config, inputs, outputs)

    watched.reported = True  # here, on a node, or by what takes it from the run cache; not of a pod that will not do
    try:
        report = through_run_cache(step, config, inputs, outputs, compute, cached)
    except ValidationFailed as failure:
        assert failure.report is not None
        warn(f"stillhouse: {failure}")
        report = failure.report
    watched.report = report
    return report


def given_folders(step: Step, values: Mapping[str, Any]) -> dict[str, Path]:
    """The input folders of a component's arguments; of a port that takes many, those in the folder that holds them."""
    found: dict[str, Path] = {}
    for port in step.inputs:
        artifact: KubeflowArtifact | None = values[port.component_input]
        if artifact is not None and port.many:
            found |= {f"{port.name}/{name}": folder for name, folder in held_folders(Path(artifact.path)).items()}
        elif artifact is not None:
            found[port.name] = Path(artifact.path)
    return found


def publish(step: Step, report: Report, outputs: Mapping[str, Path], values: Mapping[str, Any]) -> None:
    """Hands a step's outputs over to Kubeflow: digests as metadata, figures, and its views."""
    for port in step.outputs:
        artifact: KubeflowArtifact = values[port.name]
        artifact.metadata |= lineage(outputs[port.name])
    metrics = values[METRICS]
    for name, value in report.metrics.items():
        metrics.log_metric(name, value)
    # Kubeflow keeps logged figures as metadata only; its local cache takes an artifact without a file for missing.
    write_metrics(Path(metrics.path), report.metrics)
    for view in views_of(step.name):
        write_view(view, outputs, report, values[view.name])
