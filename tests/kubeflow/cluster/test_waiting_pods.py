"""What Kubernetes, Kueue and Argo report about a pod that does not start, and what the user sees."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from stillhouse.kubeflow.cluster.waiting import reasons, refusals, said

Plain = dict[str, Any]
IMAGE = "registry.example/stillhouse@sha256:" + "0" * 64


def pod(waiting: Plain | None = None, **more: Any) -> Plain:
    """Return a pod that is assigned to a node. With `waiting`, its container `main` waits."""
    status: Plain = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    if waiting:
        status["containerStatuses"] = [{"name": "main", "image": IMAGE, "state": {"waiting": waiting}}]
    return {
        "metadata": {"name": "train-1", "uid": "u1", "labels": {"kueue.x-k8s.io/queue-name": "stillhouse"}},
        "spec": {"containers": [{"name": "main"}]},
        "status": status | more,
    }


def unschedulable(words: str) -> Plain:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    return pod(conditions=[condition])


SCHEDULER = {
    "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: 3 No preemption "
    "victims found for incoming pod.": ("no node has enough nvidia.com/gpu free", "`accelerator_type`"),
    "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint {dedicated: other}, 1 "
    "node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }. preemption: not helpful": (
        "no node has enough nvidia.com/gpu free, and nodes have the taint dedicated: other, which the pod",
        "`tolerations`",
    ),
    "0/1 nodes are available: 1 Insufficient memory.": ("no node has enough memory free", "a larger node"),
    "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.": ("labels", "`node_selector`"),
    '0/1 nodes are available: persistentvolumeclaim "stillhouse-work" not found. preemption: 0/1 nodes are available: '
    "1 Preemption is not helpful for scheduling.": ("volume claim stillhouse-work does not exist", "create it"),
    "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.": ("has no volume", "storage class"),
    "0/1 nodes are available: 1 node(s) were unschedulable.": ("cordoned", "uncordon"),
    "something new": ("something new", ""),
}
CONTAINERS = {
    ("CreateContainerConfigError", 'secret "keys" not found'): ("secret keys does not exist", "kubectl create secret"),
    ("CreateContainerConfigError", "couldn't find key access-key-id in Secret stillhouse/stillhouse-data"): (
        "its secret lacks the key access-key-id",
        "`keys` of the placement",
    ),
    ("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"'): ("it could not be pulled", "lets the nodes"),
    (
        "ErrImagePull",
        f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": {IMAGE}: not found',
    ): (f"image {IMAGE} is unavailable: the registry has no such image", "by its digest"),
    ("ErrImagePull", "failed to authorize: failed to fetch anonymous token: unexpected status: 403 Forbidden"): (
        "the registry refuses the image",
        "imagePullSecrets",
    ),
    (
        "ErrImagePull",
        'failed to do request: Head "https://registry.invalid/v2/": dial tcp: lookup registry.invalid: no such host',
    ): ("the nodes cannot reach it", "name of the registry"),
    ("InvalidImageName", 'couldn\'t parse image name "A B": invalid reference format'): (
        "not a valid image name",
        "@sha256",
    ),
}
MOUNTS = {
    'MountVolume.SetUp failed for volume "keys" : secret "stillhouse-git" not found': (
        "secret stillhouse-git does not exist",
        "kubectl create secret",
    ),
    'MountVolume.SetUp failed for volume "kfp-launcher" : configmap "kfp-launcher" not found': (
        "kfp-launcher",
        "create it",
    ),
    'MountVolume.SetUp failed for volume "k" : references non-existent secret key: id': (
        "lacks the key id",
        "add the key",
    ),
}
QUEUES = {
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor "
    "a10, 1 more needed": ("no quota left now", "`nominalQuota`"),
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor stillhouse, previously "
    "considered podsets requests (0) + current podset request (16) > maximum capacity (8)": (
        "more nvidia.com/gpu than its queue can ever provide (8)",
        "raise `nominalQuota`",
    ),
    "LocalQueue stillhouse doesn't exist": ("Kueue has no LocalQueue stillhouse", "`kubectl get localqueues`"),
}


def check_one(found: list[Any], cause: str, remedy: str) -> None:
    [reason] = found
    assert cause in reason.cause and remedy in reason.remedy
    assert bool(reason.remedy) == bool(remedy), "what no row knows is shown without advice"


@pytest.mark.parametrize("words", SCHEDULER)
def test_why_no_node_is_found(words: str) -> None:
    check_one(reasons(unschedulable(words)), *SCHEDULER[words])


@pytest.mark.parametrize("logged", CONTAINERS, ids=lambda logged: logged[0])
def test_why_a_container_is_not_made(logged: tuple[str, str]) -> None:
    check_one(reasons(pod({"reason": logged[0], "message": logged[1]})), *CONTAINERS[logged])


@pytest.mark.parametrize("words", MOUNTS)
def test_why_a_volume_is_not_mounted(words: str) -> None:
    """Only an event shows the reason. Earlier events, and events of other pods and other kinds, are ignored."""

    def event(uid: str, reason: str, words: str, moment: str) -> Plain:
        return {
            "involvedObject": {"kind": "Pod", "uid": uid},
            "reason": reason,
            "message": words,
            "lastTimestamp": moment,
        }

    events = [
        event("u1", "FailedMount", words, "2026-01-01T00:00:09Z"),
        event("u2", "FailedMount", "of another pod", "2026-01-01T00:00:10Z"),
        event("u1", "FailedScheduling", "over by now", "2026-01-01T00:00:11Z"),
        event("u1", "FailedMount", "an earlier one", "2026-01-01T00:00:01Z"),
    ]
    check_one(reasons(pod({"reason": "ContainerCreating"}), events), *MOUNTS[words])


@pytest.mark.parametrize("words", QUEUES)
def test_why_a_queue_holds_a_pod_back(words: str) -> None:
    gated = pod()
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]

    def workload(uid: str, words: str) -> Plain:
        condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": words}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "train-1", "uid": uid}
        return {"metadata": {"name": f"pod-{uid}", "ownerReferences": [owner]}, "status": {"conditions": [condition]}}

    found = reasons(gated, workloads=[workload("u2", "of another pod"), workload("u1", words)])
    cause, remedy = QUEUES[words]
    check_one(found, cause, remedy)
    assert found[0].cause.startswith("Kueue's queue stillhouse holds it back")
    assert "kubectl get localqueue" in reasons(gated)[0].remedy, "also where Kueue has not said why yet"


QUOTA = (
    'pods "train-abc-system-container-impl-1" is forbidden: exceeded quota: stillhouse, requested: '
    "requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8"
)
REFUSED = {
    QUOTA: ("quota stillhouse is exhausted: requests.nvidia.com/gpu=1 requested", "raise the ResourceQuota"),
    'pods "t" is forbidden: error looking up service account stillhouse/pipeline-runner: serviceaccount '
    '"pipeline-runner" not found': ("service account does not exist", "stillhouse-steps"),
}


@pytest.mark.parametrize("words", REFUSED)
@pytest.mark.parametrize("packed", [False, True])
def test_why_a_pod_is_not_created(words: str, packed: bool) -> None:
    nodes = {
        "n1": {"type": "Pod", "phase": "Pending", "message": words},
        "n2": {"type": "Pod", "phase": "Running"},
        "n3": {"type": "Pod", "phase": "Pending", "message": "ContainerCreating"},
        "n4": {"type": "Pod", "phase": "Succeeded", "message": QUOTA},
    }
    small = base64.b64encode(gzip.compress(json.dumps(nodes).encode())).decode()
    status: Plain = {"compressedNodes": small} if packed else {"nodes": nodes}
    check_one(refusals({"status": status}), *REFUSED[words])


def test_a_step_s_message_is_found_in_its_log() -> None:
    lines = [
        "stillhouse: an earlier word",
        "Traceback",
        "stillhouse: this cluster cannot run it:",
        "  - no GPU: add one",
        "  - no claim",
        "F1122 main failed with exit code 2",
    ]
    assert said(lines) == "this cluster cannot run it:\n  - no GPU: add one\n  - no claim"
    assert said(["ok"]) == said([]) == ""
