"""The computed size of a run, compared with a measurement on a cluster (docs/reference/kubeflow-facts.md)."""

from __future__ import annotations

import pytest

from stillhouse.pipelines.catalog import Request
from stillhouse.pipelines.ir import Compiled, compile_small
from stillhouse.pipelines.placement_table import find_table
from stillhouse.pipelines.workflow_size import LARGEST_PLAIN, WorkflowSize

TOLD = 6443.3
"""Bytes that describe a task of the pipeline `train` when each task was one step: 244,846 for 38 tasks."""


def measured(tasks: int, graphs: int, specification: float) -> WorkflowSize:
    return WorkflowSize(tasks, graphs, specification, tasks * TOLD)


def test_pods_and_nodes_are_those_that_argo_counted() -> None:
    run = measured(21, 2, 379_739)
    assert (run.pods, run.nodes) == (44, 134)
    assert measured(34, 2, 379_739).pods == 70


def test_a_run_that_was_measured() -> None:
    run = measured(21, 2, 379_739)
    assert run.plain == pytest.approx(1_904_014, rel=0.02)
    assert run.compressed == pytest.approx(379_739 + 241_772, rel=0.02)


def test_the_whole_of_it_compressed() -> None:
    assert measured(34, 2, 379_739).compressed == pytest.approx(812_000, rel=0.08)


def test_some_24_pods_are_more_than_a_mebibyte() -> None:
    """11 tasks and two graphs have 24 pods. 7 tasks, with 16 pods, stay below the limit."""
    assert measured(11, 2, 379_739).plain > 1024**2 > measured(7, 2, 379_739).plain


def test_the_run_that_could_not_end_is_said_to_be_too_large() -> None:
    """It had 123 pods, 440 nodes and a specification of 511,670 bytes: more than 1,048,576 bytes compressed."""
    run = measured(52, 19, 511_670)
    assert run.pods == 123 and run.compressed > 1_048_576


@pytest.mark.parametrize("shards", [1, 64])
def test_shards_are_no_pods_of_the_workflow(shards: int) -> None:
    size = compile_small(Request("train", "simlm-msmarco", shards=shards).build(find_table("gpu"))).size
    assert (size.tasks, size.pods) == (8, 18) and size.plain <= LARGEST_PLAIN


def test_of_groups_that_wait_for_a_condition_the_largest_counts() -> None:
    def task(component: str, **more: object) -> dict[str, object]:
        return {"componentRef": {"name": component}, "taskInfo": {"name": component}} | more

    def group(*names: str) -> dict[str, object]:
        return {"dag": {"tasks": {name: task("work") for name in names}}}

    when = {"triggerPolicy": {"condition": "x == 1"}}
    spec = {
        "root": {"dag": {"tasks": {"a": task("work"), "one": task("small", **when), "two": task("large", **when)}}},
        "components": {"work": {"executorLabel": "exec"}, "small": group("b"), "large": group("c", "d", "e")},
        "deploymentSpec": {"executors": {"exec": {"container": {}}}},
    }
    size = Compiled(spec, {}).size
    assert (size.tasks, size.graphs) == (4, 3), "the other group's driver looks at its condition"
