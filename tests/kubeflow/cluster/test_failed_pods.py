"""Why a pod failed without a message of its own, according to its status and events."""

from __future__ import annotations

from typing import Any

import pytest

from stillhouse.kubeflow.cluster.failed import failure

Plain = dict[str, Any]
START_ERROR = {
    "exitCode": 128,
    "reason": "StartError",
    "message": "failed to create containerd task: OCI runtime create failed:\n exec: no such file",
}
KILLED = {"exitCode": 137, "reason": "OOMKilled"}
DONE = {"exitCode": 0, "reason": "Completed"}


def pod(**status: Any) -> Plain:
    return {"metadata": {"name": "p", "uid": "u1"}, "status": {"phase": "Failed"} | status}


def container(name: str, ended: Plain | None) -> Plain:
    state = {"terminated": ended} if ended else {"waiting": {"reason": "PodInitializing"}}
    return {"name": name, "state": state}


CASES: dict[str, tuple[Plain, str]] = {
    "an init container that cannot be started": (
        pod(
            initContainerStatuses=[container("init", DONE), container("kfp-launcher", START_ERROR)],
            containerStatuses=[container("main", None), container("wait", None)],
        ),
        (
            "its init container kfp-launcher could not be started (StartError) (failed to create containerd task: OCI "
            "runtime create failed: exec: no such file)"
        ),
    ),
    "one that ended badly": (
        pod(initContainerStatuses=[container("init", {"exitCode": 64, "reason": "Error", "message": "no key"})]),
        "its init container init ended with exit code 64 (Error) (no key)",
    ),
    "the step's own, whatever ended beside it": (
        pod(containerStatuses=[container("wait", {"exitCode": 1, "reason": "Error"}), container("main", KILLED)]),
        (
            "its container main ended with exit code 137 (OOMKilled): raise `memory_limit` of the placement, or lower "
            "batch_size"
        ),
    ),
    "Argo's own, where the step's ended well": (
        pod(containerStatuses=[container("wait", {"exitCode": 64, "reason": "Error"}), container("main", DONE)]),
        "its container wait ended with exit code 64 (Error)",
    ),
    "an eviction": (
        pod(reason="Evicted", message="The node was low on resource: memory."),
        (
            "Kubernetes ended the pod (Evicted): a run with the same parameters continues from its last checkpoint "
            "(The node was low on resource: memory.)"
        ),
    ),
    "a secret that is missing": (
        pod(reason="Failed", message='secret "keys" not found'),
        "Kubernetes ended the pod (Failed): secret keys does not exist: create it in the run's namespace with",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_why_a_pod_failed(case: str) -> None:
    failed, expected = CASES[case]
    found = str(failure(failed))
    assert found == expected or (expected.endswith("with") and found.startswith(expected))


def test_events_explain_a_failure_that_the_status_does_not() -> None:
    """If the status gives no reason, the latest event of this pod does."""

    def event(uid: str, words: str, moment: str) -> Plain:
        return {"involvedObject": {"uid": uid}, "message": words, "lastTimestamp": moment}

    events = [
        event("u1", "Error: failed to start container", "2026-01-01T00:00:09Z"),
        event("u1", "an earlier one", "2026-01-01T00:00:01Z"),
        event("u2", "of another pod", "2026-01-01T00:00:10Z"),
    ]
    assert str(failure(pod(), events)) == "Error: failed to start container"
    assert failure(pod()) is None
