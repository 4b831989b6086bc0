"""The computed size of a run, compared with a measurement on a cluster (docs/reference/kubeflow-facts.md)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stillhouse.kubeflow.pipelines.catalog import RESULTS, Request
from stillhouse.kubeflow.pipelines.ir import compile_small
from stillhouse.kubeflow.pipelines.placement_table import find_table
from stillhouse.kubeflow.pipelines.tasks import as_json
from stillhouse.kubeflow.pipelines.workflow_size import INPUT, OUTPUT, PARAMETERS, POD, plain_size, workflow_size
from stillhouse.pipeline.recipes import find_recipe, load_recipe

METADATA = 550
"""Bytes of our own metadata of each artifact when the sizes were measured."""
MEASURED = {
    "train": 1_409_275,
    "train with 8 shards": 1_511_641,
    "refresh, fine_tune": 1_312_517,
    "refresh, index": 1_000_667,
    "compare": 866_340,
    "zero-shot": 303_460,
}
"""The bytes of the workflows of six runs on a cluster (docs/reference/kubeflow-facts.md)."""


@pytest.mark.parametrize("run", MEASURED)
def test_the_size_of_a_measured_run_is_reproduced(run: str) -> None:
    """From what the pipelines of those runs were: artifacts read and written, parameters, and pods of every task."""
    shape = json.loads((Path(__file__).parent / "measured_runs.json").read_text())[run]
    answers = [
        (INPUT + METADATA) * task["ins"] + OUTPUT * task["outs"] + PARAMETERS * task["params"] + POD * task["pod"]
        for task in shape["tasks"]
    ]
    # Each skipped group of tasks has a driver, which counts as half a graph.
    assert plain_size(answers, shape["graphs"], shape["pipeline"]) == pytest.approx(MEASURED[run], rel=0.14)


LARGEST = {"train": ("labelled", "simlm-nq"), "refresh": ("simlm-nq",), "compare-objectives": ("simlm-nq",)}
"""The shipped recipes whose runs are the largest, and those of the defaults that have other stages."""


@pytest.mark.parametrize(("shards", "nodes"), [(4, 1), (99, 1), (1, 4)])
@pytest.mark.parametrize("pipeline", RESULTS)
def test_runs_of_the_shipped_recipes_stay_far_below_a_mebibyte(pipeline: str, shards: int, nodes: int) -> None:
    """Also on many nodes: none of them refuses a pipeline that Kubeflow could not follow."""
    for table in (find_table("cpu"), find_table("gpu").on_nodes(nodes)):
        for recipe in LARGEST.get(pipeline, ("",)):
            compiled = compile_small(Request(pipeline, recipe).build(replace(table, shards=shards)))
            assert workflow_size(compiled.spec, compiled.platforms) <= 700_000, (table.name, recipe)


@pytest.mark.parametrize("name", ["labelled", "unlabelled", "simlm", "simlm-msmarco"])
def test_a_pod_completes_the_recipe_that_the_pipeline_carries(name: str) -> None:
    recipe = load_recipe(find_recipe(name))
    assert json.loads(as_json(recipe)) == recipe, "also sections without settings, which stages.NAME.system looks for"
