"""The node settings that a step's pod reads, and what the nodes inherit from the pod."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from fake_cluster import own_pod

from stillhouse.errors import InputError
from stillhouse.kubernetes.pods.torchrun import exit_code
from stillhouse.kubernetes.trainjob.own_pod import describe
from stillhouse.kubernetes.trainjob.settings import NODES, NodeSettings, nodes_text, read_node_settings

SETTINGS = NodeSettings(
    nodes=2,
    task="pretraining",
    runtime="stillhouse-torch",
    cpu="8",
    cpu_limit="8",
    memory="64Gi",
    memory_limit="96Gi",
    accelerator_type="nvidia.com/gpu",
    accelerator_count=1,
)


def executor(**parameters: Any) -> list[str]:
    """The command line of a Kubeflow task's process, as kfp's launcher starts it."""
    values = {f"pipelinechannel--{name}": value for name, value in parameters.items()} | {"seed": 42}
    given = json.dumps({"inputs": {"parameterValues": values, "artifacts": {}}, "outputs": {}})
    return ["executor_main.py", "--component_module_path", "/tmp/m.py", "--executor_input", given]


@pytest.mark.parametrize(
    ("words", "kind", "count"),
    [
        ([], "nvidia.com/gpu", 1),
        (["prog", "--executor_input"], "nvidia.com/gpu", 1),
        (executor(), "nvidia.com/gpu", 1),
        (executor(accelerator_type="nvidia.com/mig-3g.40gb", accelerator_count="4"), "nvidia.com/mig-3g.40gb", 4),
    ],
)
def test_the_runs_own_accelerator_is_asked_for(words: list[str], kind: str, count: int) -> None:
    read = read_node_settings({NODES: nodes_text({"pretrain": SETTINGS})}, "pretrain", words)
    assert read is not None
    assert (read.accelerator_type, read.accelerator_count, read.processes_per_node) == (kind, count, count)


@pytest.mark.parametrize(("words", "gpus"), [([], 1), (executor(accelerator_count="4"), 4)])
def test_a_node_looks_for_the_gpus_of_its_run(words: list[str], gpus: int) -> None:
    asked = replace(SETTINGS, preflight=json.dumps({"gpus": 1, "shared_memory_gib": 16.0, "free_gib": 20.0}))
    read = read_node_settings({NODES: nodes_text({"pretrain": asked})}, "pretrain", words)
    assert read is not None
    assert json.loads(read.preflight) == {"gpus": gpus, "shared_memory_gib": 16.0, "free_gib": 20.0}


def test_nodes_without_accelerators_get_none() -> None:
    plain = replace(SETTINGS, accelerator_type="", accelerator_count=0)
    read = read_node_settings({NODES: nodes_text({"pretrain": plain})}, "pretrain", executor(accelerator_count="4"))
    assert read == plain and read.processes_per_node == 1


def test_each_step_has_its_own_and_what_it_shares_with_others() -> None:
    parts = replace(SETTINGS, nodes=8, accelerator_type="", accelerator_count=0, paths=("/volume",))
    text = nodes_text({"pretrain": SETTINGS, "count": parts})
    assert read_node_settings({NODES: text}, "pretrain") == SETTINGS
    assert read_node_settings({NODES: text}, "count") == parts
    assert read_node_settings({NODES: text}, "index") is None, "it stays in the task's own pod"


def test_one_node_has_no_node_settings() -> None:
    assert read_node_settings({}, "pretrain") is None and read_node_settings({NODES: ""}, "pretrain") is None


WRONG = {
    "no JSON": "{",
    "no mapping": "[1]",
    "unknown": json.dumps({"*": {}, "pretrain": asdict(SETTINGS) | {"nods": 3}}),
    "of one step": json.dumps(asdict(SETTINGS)),
    "lacking": '{"*": {}, "pretrain": {"nodes": 2}}',
    "no node": json.dumps({"*": {}, "pretrain": asdict(SETTINGS) | {"nodes": 0}}),
}


@pytest.mark.parametrize("case", WRONG)
def test_settings_of_another_version_are_refused(case: str) -> None:
    with pytest.raises(InputError, match="compile"):
        read_node_settings({NODES: WRONG[case]}, "pretrain")


@pytest.mark.parametrize("count", ["0", "two", "-1"])
def test_an_invalid_count_is_refused(count: str) -> None:
    with pytest.raises(InputError, match=r"accelerator_count is .*whole number of at least 1"):
        read_node_settings({NODES: nodes_text({"pretrain": SETTINGS})}, "pretrain", executor(accelerator_count=count))


def test_secrets_stay_references_and_other_variables_have_their_values() -> None:
    pod = describe(own_pod())
    here = {"STILLHOUSE_WORK": "/volume", "STILLHOUSE_RUN": "run-1", "AWS_ACCESS_KEY_ID": "secret!", "HOME": "/x"}
    names = ["AWS_ACCESS_KEY_ID", "STILLHOUSE_RUN", "STILLHOUSE_WORK", "STILLHOUSE_TASK"]
    entries = pod.variables(names, here)
    assert entries == [
        {
            "name": "AWS_ACCESS_KEY_ID",
            "valueFrom": {"secretKeyRef": {"name": "mine", "key": "access-key-id", "optional": True}},
        },
        {"name": "STILLHOUSE_RUN", "value": "run-1"},
        {"name": "STILLHOUSE_WORK", "value": "/volume"},
    ]
    assert "secret!" not in json.dumps(entries)


def test_the_owner_is_that_of_the_pod() -> None:
    assert describe(own_pod()).owner["kind"] == "Workflow"
    alone = describe(own_pod(ownerReferences=[]))
    assert alone.owner == {"apiVersion": "v1", "kind": "Pod", "name": "train-xyz-retriever-1-123", "uid": "p-1"}
    assert describe(own_pod(ownerReferences=[], labels={})).run == "p-1"


def test_a_pod_that_is_not_a_task_s_is_refused() -> None:
    pod = own_pod()
    pod["spec"]["containers"] = pod["spec"]["containers"][:1]
    with pytest.raises(InputError, match="only a Kubeflow task"):
        describe(pod)


@pytest.mark.parametrize(
    ("codes", "expected"), [([2], 2), ([1, 2], 2), ([1], 1), ([-9, 1], 137), ([-15], 143), ([], 1)]
)
def test_bad_input_is_reported_before_errors_that_follow_from_it(codes: list[int], expected: int) -> None:
    assert exit_code(codes) == expected
