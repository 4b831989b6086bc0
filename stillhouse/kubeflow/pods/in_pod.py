"""What every task of a Kubeflow run does: a report to Prometheus, and steps on the pod's processes or nodes.

This module does not import kfp.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import write_whole_json
from stillhouse.core.context import say
from stillhouse.core.errors import access_errors
from stillhouse.core.monitoring.watch import Watched, watch
from stillhouse.kubeflow.pods.process import one_line_errors, refuse_lost_gpu
from stillhouse.kubeflow.pods.several_processes import execute_together, processes_for
from stillhouse.kubeflow.trainjob.settings import read_node_settings
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.steps.spec import DIVIDED, Paths, Report, Step

SHARED_BY_HAND = ("vectors", "counts")
"""Inputs through which a recipe gives a step other steps' shards; such a step does not share its work with nodes."""


@contextmanager
def watched_task(name: str) -> Iterator[Watched]:
    """`one_line_errors`, and reports how the task ended to Prometheus if the environment asks for it."""
    with one_line_errors(), watch(name, say, task=True) as watched, access_errors():
        yield watched


def hand_over_figures(artifact: Any, figures: Mapping[str, float]) -> None:
    """Logs figures to a task's metrics artifact, and writes them to its file.

    Kubeflow keeps logged figures as metadata only; its local cache treats an artifact without a file as missing.
    """
    for name, value in figures.items():
        artifact.log_metric(name, value)
    write_whole_json(Path(artifact.path), dict(figures))


def _part_of(step: Step, inputs: Paths) -> str:
    """The step that does one shard of this step's work; empty if the work should not be divided."""
    part = DIVIDED.get(step.name, "")
    # A fused teacher may have no cross-encoder, and then no work that needs a node.
    needed = {port.name for port in find_step(part).inputs if not port.optional} if part else set()
    return part if needed <= inputs.keys() and not set(SHARED_BY_HAND) & inputs.keys() else ""


def run_step(step: Step, config: Any, inputs: Paths, outputs: Paths, task: str) -> Report:
    """Runs a step in a pod, on the pod's number of processes or nodes.

    `task` is the name of the step in the run's graph, which may have several of a kind.
    """
    refuse_lost_gpu()
    part = _part_of(step, inputs)
    shared = read_node_settings(os.environ, part, sys.argv) if part else None
    if shared:
        from stillhouse.kubeflow.trainjob.shares import shared_work

        with shared_work(step, config, inputs, replace(shared, task=task)) as shares:
            return execute(step, config, inputs, outputs, shares=shares)
    nodes = read_node_settings(os.environ, step.name, sys.argv)
    if nodes:
        from stillhouse.kubeflow.trainjob.launch import execute_on_nodes

        return execute_on_nodes(step, config, inputs, outputs, replace(nodes, task=task))
    number = processes_for(step)
    if number > 1:
        return execute_together(step, config, inputs, outputs, number)
    return execute(step, config, inputs, outputs)
