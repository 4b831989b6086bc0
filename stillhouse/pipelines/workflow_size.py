"""The size of a run: Argo stores it in one object, its workflow, and Kubeflow can only follow a small one.

Above 1 MiB Argo compresses the status of the nodes, which Kubeflow Pipelines 2.17 does not read: tasks in the user
interface then stop changing. A workflow above 1 MiB even when compressed cannot end. This module estimates both sizes
from the pipeline, with factors fitted to a run on a real cluster (docs/reference/kubeflow-facts.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stillhouse.errors import InputError

LARGEST_PLAIN = 900_000
"""The largest accepted plain workflow in bytes: one seventh less than Argo's 1 MiB, since this is an estimate."""
SPECIFICATION = 1.67
"""Bytes of the workflow's specification per byte of the pipeline's, which is nested in it as text within text."""
NODE = 800
"""Bytes of a node's own fields in the status: names, times, phase, children."""
COPIES = 10.5
"""How often the status contains a task's description: with the driver, its answer, the executor and the pod, each
twice, since KFP's settings for Argo make a `Retry` node for each."""
COMPRESSED = 6.3
"""The compression ratio of the status in Argo."""
DRIVER_PODS, TASK_PODS = 1, 2
DAG_NODES, TASK_NODES = 4, 6
"""A graph has a driver pod; a task has a driver pod and its own. Each pod and graph has a node and a `Retry` node."""

Plain = dict[str, Any]


@dataclass(frozen=True)
class WorkflowSize:
    """A run in which all `tasks` and `graphs` (groups of tasks, including the whole) are done.

    `specification` is the size of the workflow's specification and `described` that of the tasks' descriptions, in
    bytes.
    """

    tasks: int
    graphs: int
    specification: float
    described: float

    @property
    def pods(self) -> int:
        return TASK_PODS * self.tasks + DRIVER_PODS * self.graphs

    @property
    def nodes(self) -> int:
        return TASK_NODES * self.tasks + DAG_NODES * self.graphs

    @property
    def status(self) -> float:
        return NODE * self.nodes + COPIES * self.described

    @property
    def plain(self) -> int:
        """Bytes of the workflow while Argo does not compress it."""
        return round(self.specification + self.status)

    @property
    def compressed(self) -> int:
        """Bytes of the workflow with its status compressed."""
        return round(self.specification + self.status / COMPRESSED)


def workflow_size(spec: Plain, platforms: Plain) -> WorkflowSize:
    """The size of the largest run of a compiled pipeline, which runs one of its conditional groups."""
    tasks, graphs = _largest(spec, platforms, spec["root"]["dag"])
    return WorkflowSize(len(tasks), graphs, SPECIFICATION * _size([spec, platforms]), sum(tasks))


def pods_of(platforms: Plain) -> Plain:
    """The Kubernetes part of each executor, by its label."""
    kubernetes: Plain = platforms.get("platforms", {}).get("kubernetes", {})
    return dict(kubernetes.get("deploymentSpec", {})).get("executors", {})


def refuse_large(name: str, size: WorkflowSize) -> None:
    """Raises `InputError` for a pipeline whose runs Kubeflow could not follow."""
    if size.plain > LARGEST_PLAIN:
        raise InputError(
            f"a run of pipeline {name} would take {size.plain:,} bytes in Argo ({size.tasks} tasks, {size.pods} pods), "
            f"but Kubeflow can only follow about {LARGEST_PLAIN:,}; leave stages out of the recipe, or compare fewer "
            "variants or seeds"
        )


def _largest(spec: Plain, platforms: Plain, graph: Plain) -> tuple[list[int], int]:
    """The size of the description of each task in a graph and its subgraphs, in bytes, and the number of graphs."""
    containers: Plain = spec["deploymentSpec"]["executors"]
    pods = pods_of(platforms)
    described, graphs = list[int](), 1
    conditional: list[tuple[list[int], int]] = []
    for task in graph["tasks"].values():
        component = spec["components"][task["componentRef"]["name"]]
        if "dag" in component:
            inside = _largest(spec, platforms, component["dag"])
            if "condition" in task.get("triggerPolicy", {}):
                conditional.append(inside)
            else:
                described, graphs = described + inside[0], graphs + inside[1]
        else:
            label = component["executorLabel"]
            described.append(_size([task, component, containers[label], pods.get(label, {})]))
    chosen = max(conditional, key=lambda inside: sum(inside[0]), default=([], 0))
    # Each of the other groups has a driver pod, which finds its condition false.
    return described + chosen[0], graphs + chosen[1] + max(0, len(conditional) - 1)


def _size(content: Any) -> int:
    return len(json.dumps(content, separators=(",", ":")))
