"""Placements on several nodes: what is refused, and what a step's pod receives in the compiled pipeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillhouse import cli
from stillhouse.core.monitoring.settings import PIPELINE, TASK
from stillhouse.kubeflow.pipelines.catalog import Request
from stillhouse.kubeflow.pipelines.ir import Compiled, compile_small
from stillhouse.kubeflow.pipelines.placement_table import find_table
from stillhouse.kubeflow.pods.process import HAS_GPU
from stillhouse.kubeflow.trainjob.settings import NODES, nodes_of, read_node_settings


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_small(Request("train", "simlm").build(find_table("gpu").on_nodes(4)))


def executor(compiled: Compiled, component: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the container of a component, and the Kubernetes settings of its pod."""
    label = compiled.spec["components"][f"comp-{component}"]["executorLabel"]
    on_kubernetes = compiled.platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return compiled.spec["deploymentSpec"]["executors"][label]["container"], on_kubernetes[label]


def task_of(compiled: Compiled, name: str) -> dict[str, Any]:
    """A task by its name in the pipeline."""
    [found] = [
        task
        for component in compiled.spec["components"].values()
        for task in component.get("dag", {}).get("tasks", {}).values()
        if task["taskInfo"]["name"] == name
    ]
    return dict(found)


def nodes_for(compiled: Compiled, task: str, step: str) -> Any:
    """What the run's first task writes for a step of a task."""
    text = task_of(compiled, "check")["inputs"]["parameters"]["nodes"]["runtimeValue"]["constant"]
    return read_node_settings({NODES: nodes_of(text, task)}, step)


def test_a_task_that_only_trains_asks_for_no_gpu_itself(compiled: Compiled) -> None:
    container, pod = executor(compiled, "pretraining")
    assert "accelerator" not in container["resources"] and "tolerations" not in pod
    logged = nodes_for(compiled, "pretraining", "pretrain")
    assert logged is not None and (logged.placement.nodes, logged.task, logged.placement.cpu) == (4, "pretraining", "8")
    assert logged.placement.queue_labels == {"kueue.x-k8s.io/queue-name": "stillhouse"}
    variables = {entry["name"] for entry in container["env"]}
    assert HAS_GPU not in variables
    fields = {entry["name"]: entry["fieldPath"] for entry in pod["fieldPathAsEnv"]}
    # Everything that it names exists in its own pod: variables, references to secrets, mounts.
    there = variables | fields.keys() | {PIPELINE, TASK}
    assert set(logged.placement.variables) <= there
    assert set(logged.placement.paths) <= {mount["mountPath"] for mount in pod["pvcMount"]}


def test_only_parallel_steps_run_on_several_nodes(compiled: Compiled) -> None:
    logged = nodes_for(compiled, "retriever_2", "train-retriever")
    assert logged is not None and logged.placement.nodes == 4
    for step, nodes, parallel in (("mine", 1, False), ("retrieve", 1, False), ("index", 4, True)):
        logged = nodes_for(compiled, "retriever_2", step)
        assert logged is not None and (logged.placement.nodes, logged.parallel) == (nodes, parallel), step
    assert nodes_for(compiled, "retriever_2", "encode") is None, "the nodes of `index` divide the corpus themselves"


def test_a_divided_corpus_has_a_shard_for_each_node_and_the_pod() -> None:
    sharded = compile_small(Request("train", "simlm").build(replace(find_table("gpu"), shards=8)))
    for task, step in (
        ("corpus", "count"),
        ("retriever_1", "encode"),
        ("distillation", "encode"),
        ("distillation", "score-shard"),
    ):
        container, _ = executor(sharded, task.replace("_", "-"))
        logged = nodes_for(sharded, task, step)
        assert logged is not None and logged.placement.nodes == 7, task
        assert ("accelerator" in container["resources"]) == (step != "count"), "the pod does a shard too"
    assert len(sharded.spec["deploymentSpec"]["executors"]) <= 10, "each task has two pods"


def test_the_runs_accelerator_reaches_the_step(compiled: Compiled) -> None:
    """They are inputs of the task, which kfp's executor receives unchanged."""
    wanted = {"pipelinechannel--accelerator_type", "pipelinechannel--accelerator_count"}
    for name in ("pretraining", "retriever_1", "distillation"):
        given = task_of(compiled, name)["inputs"]["parameters"]
        assert {channel: given[channel] for channel in wanted} == {
            channel: {"componentInputParameter": channel} for channel in wanted
        }


def test_the_command_line_sets_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["pipeline", "compile", "train", "--recipe", "simlm", "--placements", "gpu", "--nodes", "3"]
    assert cli.main([*words, "--output", "train.yaml"]) == 0
    spec, platforms = yaml.safe_load_all(Path("train.yaml").read_text())
    for task in ("pretraining", "retriever_1", "distillation"):
        step = "pretrain" if task == "pretraining" else "train-retriever"
        assert nodes_for(Compiled(spec, platforms), task, step).placement.nodes == 3, task
