"""The bodies of Kubeflow components: parameters become settings, artifacts become folders.

This module does not import kfp; it only uses a few attributes of its artifacts.
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
from stillhouse.acceleration.threads import prepare_threads
from stillhouse.config import build, field_types
from stillhouse.context import quiet, say
from stillhouse.errors import CRASH, CrashElsewhere, InputError, ValidationFailed, access_errors, is_full_disk
from stillhouse.kubernetes.pods.cached_step import CachedUse, through_run_cache
from stillhouse.kubernetes.pods.component_views import views_of, write_view
from stillhouse.kubernetes.pods.held_folders import held_folders
from stillhouse.kubernetes.pods.pod_preflight import check_pod
from stillhouse.kubernetes.pods.several_processes import execute_together, processes_for
from stillhouse.kubernetes.trainjob.settings import read_node_settings
from stillhouse.monitoring import activity
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
"""Inputs through which a recipe gives a step other steps' shards; such a step does not share its work with nodes."""


class KubeflowArtifact(Protocol):
    """The used part of a `kfp.dsl.Artifact`; `Metrics` also has `log_metric`."""

    path: str
    metadata: dict[str, Any]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Ends the process like the command line: bad input with its message and exit code, without a stack trace.

    The same holds for a full disk or a volume at its quota, which the pod's placement can fix. Every pod starts with
    this, before it imports PyTorch, so its threads are set here too.
    """
    prepare_threads()
    try:
        with interrupt.ends_soon(), access_errors():
            yield
    except KeyboardInterrupt:  # in a run on this machine
        raise SystemExit(interrupt.exit_code()) from None
    except (InputError, ValidationFailed, CrashElsewhere) as error:
        warn(f"stillhouse: {error}")
        raise SystemExit(error.exit_code) from None
    except OSError as error:
        if not is_full_disk(error):
            raise
        where = f" ({error.filename})" if error.filename else ""
        remedy = "raise `scratch` in the placement, or free or enlarge the work volume; outputs are unchanged"
        warn(f"stillhouse: {error.strerror}{where}; {remedy}")
        raise SystemExit(CRASH) from None


@contextmanager
def watched_task(name: str) -> Iterator[Watched]:
    """`one_line_errors`, and reports how the task ended to Prometheus if the environment asks for it."""
    with one_line_errors(), watch_task(name, say) as watched, access_errors():
        yield watched


def run_component(step_name: str, values: Mapping[str, Any]) -> None:
    """Runs a step with a component's arguments: its input and output artifacts, `metrics`, views and settings.

    Every output artifact gets its lineage as metadata (`stillhouse.releases.lineage`), which links a run to the same
    artifact elsewhere. Figures are logged for Kubeflow and written to the metrics artifact as JSON.

    A corpus that does not pass does not fail its task, as Kubeflow would discard the page that says why. Instead,
    every step that receives the verdict refuses to work and ends the run.
    """
    with watched_task(step_name) as watched, activity.watched(step_name, quiet()):
        step = find_step(step_name)
        check_pod(step.parallel)
        settings = {name: from_component(values[name], hint, name) for name, hint in field_types(step.config).items()}
        config: Any = build(step.config, settings, f"component {step.identifier}")
        outputs = {port.name: Path(values[port.name].path) for port in step.outputs}
        report = run_step(step, config, given_folders(step, values), outputs, watched, None)
        publish(step, report, outputs, values)


def _part_of(step: Step, inputs: Paths) -> str:
    """The step that does one shard of this step's work; empty if the work should not be divided."""
    part = DIVIDED.get(step.name, "")
    if not part or set(SHARED_BY_HAND) & inputs.keys():
        return ""
    # A fused teacher may have no cross-encoder, and then no work that needs a node.
    needed = {port.name for port in find_step(part).inputs if not port.optional}
    return part if needed <= inputs.keys() else ""


def run_step(
    step: Step, config: Any, inputs: Paths, outputs: Paths, watched: Watched, cached: CachedUse | None, task: str = ""
) -> Report:
    """Runs a step in a pod, on the pod's number of processes or nodes, unless the run cache has its outputs.

    `cached` is the use and its section, for the run cache; `task` is the name of the use if the pod runs several. A
    corpus that does not pass also gets a report, with the fact `passed` as false.
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

    watched.reported = True  # by this process, a node or the run cache; not if the pod failed its preflight
    try:
        report = through_run_cache(step, config, inputs, outputs, compute, cached)
    except ValidationFailed as failure:
        assert failure.report is not None
        warn(f"stillhouse: {failure}")
        report = failure.report
    watched.report = report
    return report


def given_folders(step: Step, values: Mapping[str, Any]) -> dict[str, Path]:
    """The input folders of a component's arguments; a port that takes many gets the folders inside its artifact."""
    found: dict[str, Path] = {}
    for port in step.inputs:
        artifact: KubeflowArtifact | None = values[port.component_input]
        if artifact is not None and port.many:
            found |= {f"{port.name}/{name}": folder for name, folder in held_folders(Path(artifact.path)).items()}
        elif artifact is not None:
            found[port.name] = Path(artifact.path)
    return found


def publish(step: Step, report: Report, outputs: Mapping[str, Path], values: Mapping[str, Any]) -> None:
    """Gives a step's outputs to Kubeflow: digests as metadata, figures, and views."""
    for port in step.outputs:
        artifact: KubeflowArtifact = values[port.name]
        artifact.metadata |= lineage(outputs[port.name])
    metrics = values[METRICS]
    for name, value in report.metrics.items():
        metrics.log_metric(name, value)
    # Kubeflow keeps logged figures as metadata only; its local cache treats an artifact without a file as missing.
    write_metrics(Path(metrics.path), report.metrics)
    for view in views_of(step.name):
        write_view(view, outputs, report, values[view.name])
