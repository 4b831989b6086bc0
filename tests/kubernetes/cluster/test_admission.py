"""What a cluster lacks for a run, and the remedy for each case. The tests need no cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stillhouse.errors import InputError
from stillhouse.kubernetes.cluster.admission import check, find
from stillhouse.kubernetes.cluster.api import Unseen
from stillhouse.kubernetes.cluster.quantity import amount
from stillhouse.kubernetes.cluster.readings import Node, Queue, Quota, Readings, take_readings
from stillhouse.kubernetes.cluster.wanted import PodKind, Wanted, WantedSecret, read_wanted

GIB = 1024.0**3
GPU = "nvidia.com/gpu"
TAINT = {"key": "dedicated", "value": "other", "effect": "NoSchedule"}
GPU_TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}
TRAINING = PodKind(
    tasks=("pretrain", "train-retriever"),
    cpu="8",
    cpu_limit="8",
    memory="64Gi",
    memory_limit="96Gi",
    accelerator=True,
    tolerations=({"key": GPU, "effect": "NoSchedule"},),
    queue="stillhouse",
)
SMALL = PodKind(tasks=("gate",), cpu="250m", cpu_limit="2", memory="1Gi", memory_limit="4Gi", queue="stillhouse")
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
    quotas=(Quota(name="stillhouse", hard={"pods": 50, "requests.cpu": 16, f"requests.{GPU}": 8}),),
    queues={"stillhouse": Queue(cluster_queue="stillhouse")},
    secrets={"data_secret": ()},
)


def test_a_complete_cluster_is_accepted() -> None:
    assert check(WANTED, GOOD) == []


def quotas(**hard: float) -> dict[str, Any]:
    return {"quotas": (Quota(name="stillhouse", hard={name.replace("_", "."): value for name, value in hard.items()}),)}


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
    "quota of GPUs": (
        {"quotas": (Quota(name="q", hard={f"requests.{GPU}": 1}),)},
        ["quota q of this namespace allows 1 of requests.nvidia.com/gpu", "one pod of pretrain", "need 2", "raise"],
    ),
    "quota of memory": (quotas(requests_memory=32 * GIB), ["allows 32Gi of requests.memory", "need 64Gi"]),
    "quota of limits": (quotas(limits_memory=80 * GIB), ["allows 80Gi of limits.memory", "need 96Gi"]),
    "quota of cores": (quotas(requests_cpu=4), ["allows 4 of requests.cpu", "need 8"]),
    "no pods": (quotas(pods=0), ["allows 0 of pods", "gate"]),
    "queue": ({"queues": {"stillhouse": None}}, ["Kueue has no LocalQueue stillhouse in this namespace: create it"]),
    "queue that is stopped": (
        {"queues": {"stillhouse": Queue(cluster_queue="all", inactive="ClusterQueue is stopped")}},
        ["queue stillhouse admits nothing (ClusterQueue is stopped)", "ClusterQueue all"],
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_a_missing_resource_refuses_the_run_with_a_remedy(case: str) -> None:
    changes, logged = MISSING[case]
    with pytest.raises(InputError) as refusal:
        check(WANTED, replace(GOOD, **changes))
    for words in logged:
        assert words in str(refusal.value)


PASSABLE: dict[str, dict[str, Any]] = {
    "a node that is not ready": {
        "nodes": (node(taints=({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},)),)
    },
    "a taint that only asks": {"nodes": (node(taints=(TAINT | {"effect": "PreferNoSchedule"},)),)},
    "a claim that waits for its first pod": {"claims": {"stillhouse-work": "Pending"}},
    "quota of what no pod asks for": quotas(persistentvolumeclaims=0),
}


@pytest.mark.parametrize("case", PASSABLE)
def test_temporary_shortages_are_ignored(case: str) -> None:
    assert check(WANTED, replace(GOOD, **PASSABLE[case])) == []


NOTICED: dict[str, tuple[dict[str, Any], str]] = {
    "optional secret": (
        {"secrets": {"data_secret": ("access-key-id",)}},
        "secret stillhouse-data does not exist, or lacks",
    ),
    "quota in use": (
        {"quotas": (Quota(name="q", hard={"requests.cpu": 16}, used={"requests.cpu": 10}),)},
        "quota q has 6 of requests.cpu left now, but one pod of pretrain, train-retriever would need 8: pods wait",
    ),
    "quota with scopes": ({"quotas": (Quota(name="q", hard={"pods": 0}, scoped=True),)}, "not checked: quota q"),
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


@pytest.mark.parametrize("case", ["no nodes", "no GPU", "too few in one node", "little memory", "taint"])
def test_autoscaled_nodes_may_be_missing(case: str) -> None:
    wanted = replace(WANTED, pods=(SMALL, replace(TRAINING, scales_from_zero=True)))
    [notice] = check(wanted, replace(GOOD, **MISSING[case][0]))
    assert GPU in notice


def test_autoscaling_does_not_override_a_quota() -> None:
    wanted = replace(WANTED, pods=(replace(TRAINING, scales_from_zero=True),))
    assert find(wanted, replace(GOOD, quotas=(Quota(name="q", hard={f"requests.{GPU}": 1}),))).problems


def test_node_labels_are_checked() -> None:
    picky = replace(WANTED, pods=(replace(TRAINING, node_selector={"gpu": "h200"}),))
    with pytest.raises(InputError, match=r"no node with 2 nvidia.com/gpu has the labels gpu=h200"):
        check(picky, GOOD)
    assert check(picky, replace(GOOD, nodes=(node(labels={"gpu": "h200"}),))) == []


def test_a_training_on_several_nodes_needs_quota_for_all_of_them() -> None:
    """The quota allows 8 GPUs: 4 nodes with 2 GPUs each fit, 5 do not."""
    assert not find(replace(WANTED, pods=(replace(TRAINING, nodes=4),)), replace(GOOD, **QUOTA_OF_8)).problems
    [logged] = find(replace(WANTED, pods=(replace(TRAINING, nodes=5),)), replace(GOOD, **QUOTA_OF_8)).problems
    assert "5 nodes of pretrain, train-retriever would need 10" in logged


QUOTA_OF_8: dict[str, Any] = {"quotas": (Quota(name="q", hard={f"requests.{GPU}": 8}),)}


def test_everything_is_reported_at_once() -> None:
    bad = replace(GOOD, nodes=(), claims={"stillhouse-work": None}, queues={"stillhouse": None})
    assert len(find(WANTED, bad).problems) == 3


SHARES = replace(TRAINING, tasks=("encode",), nodes=3)
OTHERS = replace(TRAINING, tasks=("mine",), cpu_limit="16")
SEVERAL = replace(WANTED, pods=(SMALL, TRAINING, SHARES, OTHERS), claims={"work_claim": "w", "store_claim": "w"})


def test_one_problem_of_several_kinds_of_pods_is_reported_once() -> None:
    quotas = (Quota(name="q", hard={f"requests.{GPU}": 1}),)
    bad = replace(GOOD, nodes=(node(gpus=0),), claims={"w": None}, quotas=quotas)
    claim, nodes, quota = find(SEVERAL, bad).problems
    assert "work_claim and store_claim" in claim
    assert nodes.endswith("(needed by pretrain, train-retriever, encode and 1 more)")
    assert "3 nodes of encode would need 6, one pod of pretrain, train-retriever 2, one pod of mine 2: raise" in quota


def test_one_shortage_of_several_kinds_of_pods_is_reported_once() -> None:
    scaled = [replace(kind, scales_from_zero=True) for kind in SEVERAL.pods]
    busy = (Quota(name="q", hard={f"requests.{GPU}": 8}, used={f"requests.{GPU}": 7}),)
    found = find(replace(SEVERAL, pods=tuple(scaled)), replace(GOOD, nodes=(), claims={"w": "Bound"}, quotas=busy))
    nodes, quota = found.notices
    assert "encode" in nodes and "3 nodes of encode would need 6" in quota and not found.problems


@pytest.mark.parametrize("status", [403, 500, 0])
def test_what_cannot_be_read_is_reported_once(status: int) -> None:
    """Kubernetes names the object in each of its refusals."""

    class Closed:
        namespace = "stillhouse"

        def __getattr__(self, name: str) -> Any:
            def ask(*names: str) -> Any:
                raise Unseen(f"{name} {names} is forbidden", status=status)

            return ask

    two = tuple(replace(kind, queue=name) for kind, name in ((TRAINING, "a"), (SHARES, "b")))
    wanted = replace(WANTED, pods=two, claims={"work_claim": "one", "store_claim": "two"})
    kinds = [why.partition(":")[0] for why in take_readings(wanted, Closed()).unseen]  # type: ignore[arg-type]
    assert kinds == ["the nodes", "the quota", "the volume claims", "the queues", "which pods Argo retries"]


@pytest.mark.parametrize("count", ["0", "two", "-1", "1.5", ""])
def test_an_invalid_count_is_refused(count: str) -> None:
    with pytest.raises(InputError, match="use a whole number of at least 1"):
        check(replace(WANTED, accelerator_count=count), GOOD)


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


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"pods": [], "secrets": [], "more": 1}', '{"pods": [1], "secrets": []}']
)
def test_requirements_of_another_version_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="compile the pipeline again"):
        read_wanted(text)


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
