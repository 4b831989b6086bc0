"""The node settings that a step's pod reads, and what the nodes inherit from the pod."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fake_cluster import own_pod

from stillhouse.kubeflow.placement import Accelerator, Claim, Placement, Toleration
from stillhouse.kubeflow.trainjob.own_pod import describe
from stillhouse.kubeflow.trainjob.settings import NODES, NodeSettings, nodes_of, nodes_text, read_node_settings

PLACEMENT = Placement(
    nodes=2,
    cpu="8",
    memory="64Gi",
    memory_limit="96Gi",
    accelerator=Accelerator(),
    tolerations=(Toleration(key="gpu"),),
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
    read = read_node_settings({NODES: nodes_text([("pretraining", "pretrain", PLACEMENT)])}, "pretrain", words)
    assert read is not None
    accelerator = Accelerator(type=kind, count=count)
    assert (read.placement, read.processes) == (replace(PLACEMENT, accelerator=accelerator), count)


def test_each_task_finds_its_own_and_what_it_shares_with_others() -> None:
    claim = Claim(role="work_claim", name="work", path="/volume")
    parts = replace(PLACEMENT, nodes=8, accelerator=None, claims=(claim,))
    other = replace(PLACEMENT, tolerations=(Toleration(key="a"),))
    one, two = ("pretraining", "pretrain"), ("pretraining", "importance")
    text = nodes_text([(*one, PLACEMENT), (*two, parts), ("retriever_1", "train-retriever", other)])
    own = {NODES: nodes_of(text, "pretraining")}
    assert read_node_settings(own, "pretrain") == NodeSettings(task="pretraining", placement=PLACEMENT)
    found = read_node_settings(own, "importance")
    assert found == NodeSettings(task="pretraining", placement=parts, parallel=False)
    assert read_node_settings(own, "train-retriever") is None, "another task's"
    found = read_node_settings({NODES: nodes_of(text, "retriever_1")}, "train-retriever")
    assert found is not None and found.placement == other
    assert nodes_of(text, "evaluation") == nodes_of("", "retriever_1") == "", "it stays in the task's own pod"


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
