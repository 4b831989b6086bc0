"""The size of a run: Argo stores it in one object, its workflow, and Kubeflow can only follow a small one.

Above 1 MiB Argo compresses the status of the nodes, which Kubeflow Pipelines 2.17 does not read: tasks in the user
interface then stop changing. This module computes the size from the pipeline. A task's driver answers with the
specification of the pod, in which every input has its metadata, and the status contains this answer some seven times.
The factors are those of six runs on a real cluster, whose sizes the model gives within 14 %
(docs/reference/kubeflow-facts.md, tests/kubeflow/pipelines/test_workflow_size.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stillhouse.core.errors import InputError

LARGEST_PLAIN = 900_000
"""The largest accepted plain workflow in bytes: a seventh less than Argo's 1 MiB."""
SPECIFICATION, SPECIFICATION_OF_ANY = 1.9, 10_000
"""Bytes of the workflow's specification per byte of the pipeline's, nested in it as text within text, and beside it."""
NODE = 4_100
"""Bytes of a node in the status without the driver's answer."""
COPIES = 7.1
"""How often the status contains the driver's answer: six times, with its quotes escaped once more."""
INPUT, OUTPUT, PARAMETERS, POD = 890, 379, 1.1, 1.56
"""Bytes of an answer: for each artifact that the task reads and writes, and per byte of its parameters' values and of
the description of its pod."""
VALUE, OTHER = 24, 8
"""Bytes of a parameter that another task or the run's form gives, and of any beside its name and value."""
METADATA = 60
"""Bytes of our own metadata of an artifact that a task reads (`kubeflow/pods/stage.py`)."""
DAG_NODES, TASK_NODES = 6, 6
"""A graph has a driver pod; a task has a driver pod and its own. Each pod and graph has a node and a `Retry` node."""

Plain = dict[str, Any]


def plain_size(answers: Sequence[float], graphs: float, pipeline: int) -> int:
    """The bytes of a run in which all tasks are done, while Argo does not compress it. `answers` are the bytes of each
    task's driver's answer, `graphs` the number of groups of tasks, including the whole, `pipeline` its own bytes."""
    nodes = TASK_NODES * len(answers) + DAG_NODES * graphs
    return round(SPECIFICATION_OF_ANY + SPECIFICATION * pipeline + NODE * nodes + COPIES * sum(answers))


def workflow_size(spec: Plain, platforms: Plain) -> int:
    """The `plain_size` of a run of a compiled pipeline that runs all its tasks."""
    components, pods = spec["components"], pods_of(platforms)
    graphs = [part["dag"] for part in (spec["root"], *components.values()) if "dag" in part]
    answers = []
    for task in (task for graph in graphs for task in graph["tasks"].values()):
        component = components[task["componentRef"]["name"]]
        if "dag" not in component:
            given = task.get("inputs", {})
            container = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
            answers.append(
                (INPUT + METADATA) * len(given.get("artifacts", {}))
                + OUTPUT * len(component.get("outputDefinitions", {}).get("artifacts", {}))
                + PARAMETERS * sum(_value(name, of) for name, of in given.get("parameters", {}).items())
                + POD * (_size(container) + _size(pods.get(component["executorLabel"], {})))
            )
    return plain_size(answers, len(graphs), _size([spec, platforms]))


def pods_of(platforms: Plain) -> Plain:
    """The Kubernetes part of each executor, by its label."""
    kubernetes: Plain = platforms.get("platforms", {}).get("kubernetes", {})
    return dict(kubernetes.get("deploymentSpec", {})).get("executors", {})


def refuse_large(name: str, size: int) -> None:
    """Raises `InputError` for a pipeline whose runs Kubeflow could not follow."""
    if size > LARGEST_PLAIN:
        raise InputError(
            f"a run of pipeline {name} would take {size:,} bytes in Argo, but Kubeflow can only follow about "
            f"{LARGEST_PLAIN:,}; leave stages out of the recipe, or compare fewer variants or seeds"
        )


def _value(name: str, parameter: Plain) -> int:
    """The bytes of a parameter in an answer, as text within text."""
    known = parameter.get("runtimeValue", {}).get("constant")
    return len(name) + OTHER + (VALUE if known is None else _size(json.dumps(known)) - 4)


def _size(content: Any) -> int:
    return len(json.dumps(content, separators=(",", ":")))
