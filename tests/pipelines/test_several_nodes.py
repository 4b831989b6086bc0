"""Placements on several nodes: what is refused, and what a step's pod is told in the compiled pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.catalog import Request
from pipelines.ir import Compiled, compile_small
from pipelines.placement import Placement
from pipelines.placement_table import TRAININGS, find_table, read_table
from pipelines.several_nodes import launcher_of
from stillhouse import cli
from stillhouse.errors import InputError
from stillhouse.steps.registry import steps
from stillhouse.trainjob.settings import NODES, POD, POD_NAMESPACE, read_node_settings

CLAIM = "{parameter: work_claim, name: work, path: /volume, variable: STILLHOUSE_WORK}"
WRONG = {
    "none": (f"kinds: {{default: {{}}, big: {{nodes: 0, claims: [{CLAIM}]}}}}", "0 nodes; give 1 to 99"),
    "a step of one process": (
        f"kinds: {{default: {{}}, big: {{nodes: 2, claims: [{CLAIM}]}}}}\nsteps: {{train-reranker: big}}",
        "train-reranker cannot run on 2 nodes, only pretrain and train-retriever can; give it a kind with nodes: 1",
    ),
    "no volume": ("kinds: {default: {}, big: {nodes: 2}}\nsteps: {pretrain: big}", "variable: STILLHOUSE_WORK"),
}


@pytest.mark.parametrize("case", WRONG)
def test_nodes_that_cannot_be_are_refused(case: str, tmp_path: Path) -> None:
    text, message = WRONG[case]
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "mine.yaml")


def test_trainings_are_steps_of_several_processes() -> None:
    assert all(steps()[name].parallel for name in TRAININGS)


def test_the_pod_that_waits_is_small() -> None:
    placement = launcher_of(find_table("gpu").on_nodes(4).of("pretrain"))
    assert placement == launcher_of(placement) and placement.accelerator is None
    asked = find_table("gpu").of("pretrain")
    assert placement.claims == asked.claims and placement.retries == asked.retries
    assert placement.timeout_hours == asked.timeout_hours and placement.memory == "1Gi"


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_small(Request("train", "simlm").build(find_table("gpu").on_nodes(4)))


def executor(compiled: Compiled, component: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The container of a component, and what Kubernetes is told of its pod."""
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


@pytest.mark.parametrize("task", ["pretraining", "retriever_1", "distilled"])
def test_a_training_is_told_of_its_nodes_and_asks_for_no_gpu_itself(task: str, compiled: Compiled) -> None:
    component = task_of(compiled, task)["componentRef"]["name"].removeprefix("comp-")
    container, pod = executor(compiled, component)
    assert "accelerator" not in container["resources"] and "tolerations" not in pod
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    told = read_node_settings(variables)
    assert told is not None and (told.nodes, told.task, told.cpu) == (4, task, "8")
    assert told.labels == {"kueue.x-k8s.io/queue-name": "stillhouse"}
    assert "STILLHOUSE_PREFLIGHT" not in variables and json.loads(told.preflight)["gpus"] == 1
    fields = {entry["name"]: entry["fieldPath"] for entry in pod["fieldPathAsEnv"]}
    assert fields[POD] == "metadata.name" and fields[POD_NAMESPACE] == "metadata.namespace"
    assert "prometheus.io/port" not in pod["podMetadata"].get("annotations", {}), "its nodes are scraped, not itself"
    # What it names exists in its own pod: variables, references to secrets, mounts.
    there = variables.keys() | fields.keys()
    there |= {key["envVar"] for secret in pod["secretAsEnv"] for key in secret["keyToEnv"]}
    assert set(told.variables) <= there
    assert set(told.paths) <= {mount["mountPath"] for mount in pod["pvcMount"]}


def test_the_runs_accelerator_reaches_the_step(compiled: Compiled) -> None:
    """As inputs of the task, which kfp's executor is given as they are."""
    wanted = {"pipelinechannel--accelerator_type", "pipelinechannel--accelerator_count"}
    for name in ("lm_head", "pretraining", "retriever_1", "distilled"):
        given = task_of(compiled, name)["inputs"]["parameters"]
        assert {channel: given[channel] for channel in wanted} == {
            channel: {"componentInputParameter": channel} for channel in wanted
        }
    alone = compile_small(Request("train", "simlm").build(find_table("gpu")))
    before, after = (task_of(one, "pretraining")["inputs"]["parameters"].keys() for one in (alone, compiled))
    assert before == after, (
        "the same inputs as a pod that asks for the accelerator itself, which Kubeflow is known to take"
    )


def test_other_steps_stay_as_they_were(compiled: Compiled) -> None:
    for component in ("mine", "index", "train-reranker"):
        container, _ = executor(compiled, component)
        assert container["resources"]["accelerator"]
        assert NODES not in {entry["name"] for entry in container["env"]}


def test_a_training_in_a_loop_is_told_of_its_nodes_too() -> None:
    """Every group between the pipeline and the task hands the run's accelerator down."""
    made = compile_small(Request("compare-objectives", "simlm").build(find_table("gpu").on_nodes(2)))
    dags = {name: component["dag"] for name, component in made.spec["components"].items() if "dag" in component}
    wanted = {"pipelinechannel--accelerator_type", "pipelinechannel--accelerator_count"}
    containers = made.spec["deploymentSpec"]["executors"]
    found = 0
    for name, dag in dags.items():
        for task in dag["tasks"].values():
            component = made.spec["components"][task["componentRef"]["name"]]
            entries = containers.get(component.get("executorLabel"), {}).get("container", {}).get("env", [])
            if NODES in {entry["name"] for entry in entries}:
                found += 1
                assert wanted <= task["inputs"]["parameters"].keys()
                assert wanted <= made.spec["components"][name]["inputDefinitions"]["parameters"].keys()
    assert found >= 2


def test_one_node_changes_nothing() -> None:
    table = find_table("gpu")
    assert table.on_nodes(1).of("pretrain") == table.of("pretrain") and Placement().nodes == 1


def test_the_command_line_sets_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["pipeline", "compile", "train", "--placements", "gpu", "--nodes", "3", "--output", "train.yaml"]
    assert cli.main(words) == 0
    assert '"nodes": 3' in Path("train.yaml").read_text().replace('\\"', '"')


@pytest.mark.parametrize("nodes", ["-1", "100"])
def test_a_wrong_number_of_nodes_is_refused(
    nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["pipeline", "compile", "train", "--placements", "gpu", f"--nodes={nodes}"]) == 2
    assert "give 1 to 99" in capsys.readouterr().err
