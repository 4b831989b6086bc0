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
        (executor(accelerator_type="nvidia.com/mig-3g.40gb", accelerator_count="4"), "nvidia.com/mig-3g.40gb", 4),
    ],
)
def test_the_runs_own_accelerator_is_asked_for(words: list[str], kind: str, count: int) -> None:
    read = read_node_settings({NODES: nodes_text({"pretrain": SETTINGS})}, "pretrain", words)
    assert read is not None
    assert (read.accelerator_type, read.accelerator_count, read.processes_per_node) == (kind, count, count)


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


WRONG = {
    "unknown": json.dumps({"*": {}, "pretrain": asdict(SETTINGS) | {"nods": 3}}),
    "lacking": '{"*": {}, "pretrain": {"nodes": 2}}',
    "no node": json.dumps({"*": {}, "pretrain": asdict(SETTINGS) | {"nodes": 0}}),
}


@pytest.mark.parametrize("case", WRONG)
def test_settings_of_another_version_are_refused(case: str) -> None:
    with pytest.raises(InputError, match="compile"):
        read_node_settings({NODES: WRONG[case]}, "pretrain")


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


@pytest.mark.parametrize(
    ("codes", "expected"), [([2], 2), ([1, 2], 2), ([1], 1), ([-9, 1], 137), ([-15], 143), ([], 1)]
)
def test_bad_input_is_reported_before_errors_that_follow_from_it(codes: list[int], expected: int) -> None:
    assert exit_code(codes) == expected
