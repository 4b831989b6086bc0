"""The computed size of a run, compared with a measurement on a cluster (docs/reference/kubeflow-facts.md)."""

from __future__ import annotations

import pytest
import yaml

from stillhouse.pipelines.catalog import RESULTS, Request
from stillhouse.pipelines.ir import Compiled, compile_small
from stillhouse.pipelines.placement_table import find_table
from stillhouse.pipelines.workflow_size import LARGEST_PLAIN, WorkflowSize
from stillhouse.releases.refresh.parameters import carried_recipe, write_recipe
from stillhouse.workflow.recipes import find_recipe, load_recipe

BYTES_OF_A_TASK = 6443.3
"""Bytes that describe a task of the pipeline `train` when each task was one step: 244,846 for 38 tasks."""


def measured(tasks: int, graphs: int, specification: float) -> WorkflowSize:
    return WorkflowSize(tasks, graphs, specification, tasks * BYTES_OF_A_TASK)


def test_pods_and_nodes_equal_those_counted_by_argo() -> None:
    run = measured(21, 2, 379_739)
    assert (run.pods, run.nodes) == (44, 134)
    assert measured(34, 2, 379_739).pods == 70


def test_the_size_of_a_measured_run_is_reproduced() -> None:
    run = measured(21, 2, 379_739)
    assert run.plain == pytest.approx(1_904_014, rel=0.02)
    assert run.compressed == pytest.approx(379_739 + 241_772, rel=0.02)


def test_the_compressed_size_of_the_whole_run_is_reproduced() -> None:
    assert measured(34, 2, 379_739).compressed == pytest.approx(812_000, rel=0.08)


def test_a_workflow_of_24_pods_exceeds_a_mebibyte() -> None:
    """11 tasks and two graphs have 24 pods. 7 tasks, with 16 pods, stay below the limit."""
    assert measured(11, 2, 379_739).plain > 1024**2 > measured(7, 2, 379_739).plain


def test_the_run_that_argo_could_not_finish_counts_as_too_large() -> None:
    """It had 123 pods, 440 nodes and a specification of 511,670 bytes: more than 1,048,576 bytes compressed."""
    run = measured(52, 19, 511_670)
    assert run.pods == 123 and run.compressed > 1_048_576


@pytest.mark.parametrize("shards", [1, 64])
def test_shards_add_no_pods_to_the_workflow(shards: int) -> None:
    size = compile_small(Request("train", "simlm-msmarco", shards=shards).build(find_table("gpu"))).size
    assert (size.tasks, size.pods) == (8, 18) and size.plain <= LARGEST_PLAIN


def test_only_the_largest_conditional_group_counts() -> None:
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


def test_every_pipeline_can_run_on_gpus_with_its_default_recipe() -> None:
    for pipeline in RESULTS:
        compile_small(Request(pipeline).build(find_table("gpu")))  # refuses one that Kubeflow could not follow


@pytest.mark.parametrize("name", ["labelled", "unlabelled", "simlm", "simlm-msmarco"])
def test_a_pod_completes_the_recipe_that_the_pipeline_carries(name: str) -> None:
    recipe = load_recipe(find_recipe(name))
    carried = yaml.safe_load(carried_recipe(recipe))
    assert write_recipe(carried) == write_recipe(recipe)
    assert all(carried.values())
