"""What a cluster lacks for a run, and the remedy for each case. The tests need no cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.cluster.admission import check
from stillhouse.kubeflow.cluster.quantity import amount
from stillhouse.kubeflow.cluster.readings import Node, Readings
from stillhouse.kubeflow.cluster.wanted import PodKind, Wanted, WantedSecret, read_wanted

GIB = 1024.0**3
GPU = "nvidia.com/gpu"
TAINT = {"key": "dedicated", "value": "other", "effect": "NoSchedule"}
GPU_TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
TRAINING = PodKind(
    tasks=("pretrain", "train-retriever"),
    cpu="8",
    memory="64Gi",
    accelerator=True,
    tolerations=({"key": GPU, "effect": "NoSchedule"},),
    queue="stillhouse",
)
SMALL = PodKind(tasks=("gate",), cpu="250m", memory="1Gi", queue="stillhouse")
KEYS = {"access-key-id": "LOOK_0"}
DATA = WantedSecret(parameter="data_secret", name="stillhouse-data", optional=True, keys=KEYS)
WANTED = Wanted(
    pods=(SMALL, TRAINING),
    claims={"work_claim": "stillhouse-work"},
    secrets=(DATA,),
    accelerator_type=GPU,
    accelerator_count="2",
)


def node(name: str = "a", gpus: float = 8, cpu: float = 32, memory: float = 128, **more: Any) -> Node:
    return Node(name=name, allocatable={"cpu": cpu, "memory": memory * GIB, GPU: gpus}, **more)


GOOD = Readings(
    nodes=(node("cpu", 0), node("gpu", taints=(GPU_TAINT,))),
    claims={"stillhouse-work": "Bound"},
    queues={"stillhouse": True},
    secrets={"data_secret": ()},
)


def test_a_complete_cluster_is_accepted() -> None:
    assert check(WANTED, GOOD) == []


MISSING: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no nodes": ({"nodes": ()}, ["none of the cluster's 0 nodes has nvidia.com/gpu", "they have no accelerators"]),
    "no GPU": ({"nodes": (node(gpus=0),)}, ["none of the cluster's 1 nodes", "install the GPU device plugin"]),
    "another type": (
        {"nodes": (Node(name="a", allocatable={"cpu": 8, "nvidia.com/mig-1g.5gb": 7, "hugepages-2Mi": 0}),)},
        ["they have nvidia.com/mig-1g.5gb: set `accelerator_type` to what a node has", "scales_from_zero: true"],
    ),
    "too few in one node": (
        {"nodes": (node("a", 1), node("b", 1))},
        ["no node has 2 nvidia.com/gpu; the largest has 1", "lower `accelerator_count`", "pretrain, train-retriever"],
    ),
    "little memory": (
        {"nodes": (node(memory=32.5), node("b", gpus=0, memory=512))},
        [
            "no node with 2 nvidia.com/gpu has 8 CPUs and 64Gi of memory",
            "32 CPUs and 32.5Gi",
            "lower `cpu` and `memory`",
        ],
    ),
    "taint": (
        {"nodes": (node(taints=(TAINT,)), node("b", taints=({"key": "spot", "effect": "NoExecute"},)))},
        ["taint that keeps the pod out (dedicated=other:NoSchedule, spot:NoExecute)", "`tolerations` of the placement"],
    ),
    "claim": ({"claims": {"stillhouse-work": None}}, ["volume claim stillhouse-work does not exist", "work_claim"]),
    "lost claim": ({"claims": {"stillhouse-work": "Lost"}}, ["has lost its volume"]),
    "queue": ({"queues": {"stillhouse": False}}, ["Kueue has no LocalQueue stillhouse in this namespace: create it"]),
}


@pytest.mark.parametrize("case", MISSING)
def test_a_missing_resource_refuses_the_run_with_a_remedy(case: str) -> None:
    changes, logged = MISSING[case]
    with pytest.raises(InputError) as refusal:
        check(WANTED, replace(GOOD, **changes))
    for words in logged:
        assert words in str(refusal.value)


NOTICED: dict[str, tuple[dict[str, Any], str]] = {
    "optional secret": (
        {"secrets": {"data_secret": ("access-key-id",)}},
        "secret stillhouse-data does not exist, or lacks",
    ),
    "unseen": ({"nodes": None, "unseen": ("the nodes: forbidden",)}, "not checked: the nodes: forbidden"),
}


@pytest.mark.parametrize("case", NOTICED)
def test_possible_problems_are_reported_but_not_refused(case: str) -> None:
    changes, logged = NOTICED[case]
    notices = check(WANTED, replace(GOOD, **changes))
    assert len(notices) == 1 and logged in notices[0]


def test_a_mandatory_secret_refuses_the_run() -> None:
    wanted = replace(WANTED, secrets=(replace(DATA, optional=False),))
    with pytest.raises(InputError, match=r"secret stillhouse-data does not exist, or lacks access-key-id: create it"):
        check(wanted, replace(GOOD, secrets={"data_secret": ("access-key-id",)}))


def test_node_labels_are_checked() -> None:
    picky = replace(WANTED, pods=(replace(TRAINING, node_selector={"gpu": "h200"}),))
    with pytest.raises(InputError, match=r"no node with 2 nvidia.com/gpu has the labels gpu=h200"):
        check(picky, GOOD)
    assert check(picky, replace(GOOD, nodes=(node(labels={"gpu": "h200"}),))) == []


def test_requirements_round_trip_as_json_and_take_the_run_s_values() -> None:
    chosen = {"work_claim": "mine", "accelerator_type": "amd.com/gpu", "accelerator_count": "8", "data_secret": "ours"}
    read = read_wanted(WANTED.to_json())
    assert read == WANTED
    asked = read.with_chosen(chosen)
    assert (asked.claims, asked.accelerator_type, asked.accelerator_count) == (
        {"work_claim": "mine"},
        "amd.com/gpu",
        "8",
    )
    assert [secret.name for secret in asked.secrets] == ["ours"]


AMOUNTS = {
    "500m": 0.5,
    "8": 8,
    "31850m": 31.85,
    "1Ki": 1024,
    "2k": 2000,
    "1.5Gi": 1.5 * GIB,
    "1e3": 1000,
    "1Ei": 2.0**60,
}
"""Quantities, by the rules of https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/."""


def test_amounts_are_parsed_as_kubernetes_quantities() -> None:
    assert {text: amount(text) for text in AMOUNTS} == AMOUNTS
    for text in ("", "Gi", "1 Gi", "1gb", "0x1"):
        with pytest.raises(ValueError, match="not a quantity"):
            amount(text)
