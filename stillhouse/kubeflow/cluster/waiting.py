"""Why a submitted pod does not start, according to Kubernetes, Kueue and Argo."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stillhouse.kubeflow.cluster.remedies import explain

KUEUE_GATE = "kueue.x-k8s.io/"
MOUNT_TROUBLE = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
IMAGE_TROUBLE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
CONTAINER_TROUBLE = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
STARTING = ("ContainerCreating", "PodInitializing")
SENTENCE = "stillhouse: "
"""The start of a line that explains to the user why a process ended."""
REFUSED = re.compile(r"is forbidden|exceeded quota|failed quota")

Plain = dict[str, Any]


@dataclass(frozen=True)
class Reason:
    """Why something waits. `cause` is the same for all pods with the same problem; `words` is the cluster's message."""

    cause: str
    remedy: str
    words: str

    def __str__(self) -> str:
        known = f"{self.cause}: {self.remedy}" if self.remedy else self.cause
        return f"{known} ({self.words})" if self.words and self.words != self.cause else known


def of_message(words: str, what: str = "") -> Reason:
    """The reason in a message; `what` precedes it if the message does not say what it is about."""
    words = " ".join(words.split())
    cause, remedy = explain(words)
    before = f"{what}: " if what else ""
    return Reason(before + (cause or words), remedy, words if cause else "")


def waits(pod: Plain) -> bool:
    """Whether a container of a pod has not started yet; others may run meanwhile, as Argo's `wait` does."""
    return bool(pod.get("status", {}).get("phase", "Pending") == "Pending")


def is_gated(pod: Plain) -> bool:
    """Whether Kueue holds a pod back."""
    gates = pod.get("spec", {}).get("schedulingGates") or []
    return any(gate["name"].startswith(KUEUE_GATE) for gate in gates)


def is_starting(pod: Plain) -> bool:
    """Whether a pod has a node but its containers are still being created; only events say what blocks that."""
    return waits(pod) and any(one.get("reason") in STARTING for one in _waiting(pod))


def reasons(pod: Plain, events: Sequence[Plain] = (), workloads: Sequence[Plain] = ()) -> list[Reason]:
    """Why a pod waits; empty for one that has started or is starting normally.

    `events` are warnings and `workloads` come from Kueue; those of other pods are ignored.
    """
    if not waits(pod):
        return []
    if is_gated(pod):
        return [_of_queue(pod, workloads)]
    found = []
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            found.append(of_message(_without_preemption(condition.get("message") or "no node is available for it")))
    for state in _waiting(pod):
        reason, words = state.get("reason", ""), state.get("message", "")
        if reason in IMAGE_TROUBLE:
            found.append(of_message(f"{reason}: {words}", f"image {state['image']} is unavailable"))
        elif reason in CONTAINER_TROUBLE:
            found.append(of_message(words or reason))
    if not found and is_starting(pod):
        found += [of_message(event.get("message", "")) for event in _events_of(pod, events)][-1:]
    return found


def refusals(workflow: Plain) -> list[Reason]:
    """Why pods of a run were not even created, from the notes that Argo, which retries, keeps with their tasks."""
    found = []
    for node in _argo_nodes(workflow).values():
        words = node.get("message", "")
        if node.get("phase") in ("Pending", "Error") and REFUSED.search(words):
            found.append(of_message(words))
    return list(dict.fromkeys(found))


def said(lines: Sequence[str]) -> str:
    """The sentence in which a step said why it ended, with any list that follows it; "" if there is none."""
    at = [number for number, line in enumerate(lines) if line.startswith(SENTENCE)]
    if not at:
        return ""
    found = [lines[at[-1]].removeprefix(SENTENCE)]
    for line in lines[at[-1] + 1 :]:
        if not line.startswith("  "):
            break
        found.append(line)
    return "\n".join(found)


def _of_queue(pod: Plain, workloads: Sequence[Plain]) -> Reason:
    own = pod["metadata"].get("uid", "")
    queue = pod["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name", "")
    what = f"Kueue's queue {queue} holds it back"
    for workload in workloads:
        owners = [one.get("uid") for one in workload["metadata"].get("ownerReferences", [])]
        if own not in (*owners, workload["metadata"].get("labels", {}).get("kueue.x-k8s.io/job-uid")):
            continue
        for condition in workload.get("status", {}).get("conditions", []):
            if condition["type"] == "QuotaReserved" and condition["status"] == "False":
                return of_message(condition.get("message", ""), what)
    return Reason(what, "`kubectl get localqueue,workload` shows what it is waiting for", "")


def _waiting(pod: Plain) -> Iterator[Mapping[str, str]]:
    """The waiting states of the containers, each with its image."""
    status = pod.get("status", {})
    for one in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state = one.get("state", {}).get("waiting")
        if state:
            yield {"image": one.get("image", "")} | state


def _events_of(pod: Plain, events: Sequence[Plain]) -> list[Plain]:
    """Warnings about a pod's volumes, oldest first."""
    own = [
        event
        for event in events
        if event.get("involvedObject", {}).get("uid") == pod["metadata"].get("uid")
        and event.get("reason") in MOUNT_TROUBLE
    ]
    return sorted(own, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")


def _without_preemption(words: str) -> str:
    """The scheduler's message without its part about preempting other pods."""
    return re.sub(r"\s*preemption: .*", "", words)


def _argo_nodes(workflow: Plain) -> Mapping[str, Plain]:
    """The tasks of a workflow; Argo compresses large ones."""
    status = workflow.get("status", {})
    packed = status.get("compressedNodes")
    if packed:
        return dict(json.loads(gzip.decompress(base64.b64decode(packed))))
    return dict(status.get("nodes") or {})
