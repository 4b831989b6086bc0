"""Why a pod failed without explaining it itself: it never started, was killed, or was taken away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stillhouse.kubeflow.cluster.remedies import explain
from stillhouse.kubeflow.cluster.waiting import Reason, of_message

MAIN = "main"
"""The step's own container; Argo runs others next to it."""
NEVER_STARTED = ("StartError", "ContainerCannotRun")
OUT_OF_MEMORY = "OOMKilled"
RESUMES = "a run with the same parameters continues from its last checkpoint"
REMEDIES = {
    OUT_OF_MEMORY: "raise `memory_limit` of the placement, or lower batch_size",
    "DeadlineExceeded": f"raise `timeout_hours` of the placement; {RESUMES}",
    "Evicted": RESUMES,
    "Preempted": RESUMES,
    "NodeShutdown": RESUMES,
    "NodeLost": RESUMES,
}

Plain = dict[str, Any]


def failure(pod: Plain, events: Sequence[Plain] = ()) -> Reason | None:
    """Why a pod failed, from its status or else from the last warning about it; None if neither explains it.

    Init containers come first: nothing starts after one that failed.
    """
    status = pod.get("status", {})
    if status.get("reason"):
        return _reason(f"Kubernetes ended the pod ({status['reason']})", status["reason"], status.get("message", ""))
    for what, name, ended in _ends(status):
        how = ended.get("reason") or "Error"
        if how in NEVER_STARTED:
            return _reason(f"its {what} {name} could not be started ({how})", how, ended.get("message", ""))
        if ended.get("exitCode") or how == OUT_OF_MEMORY:
            cause = f"its {what} {name} ended with exit code {ended.get('exitCode')} ({how})"
            return _reason(cause, how, ended.get("message", ""))
    own = [one for one in events if one.get("involvedObject", {}).get("uid") == pod["metadata"].get("uid")]
    last = max(own, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "", default=None)
    return of_message(last.get("message", "")) if last else None


def _ends(status: Plain) -> Iterator[tuple[str, str, Plain]]:
    """The ended containers: what each one is, its name, and how it ended."""
    containers = sorted(status.get("containerStatuses") or [], key=lambda one: one["name"] != MAIN)
    for what, found in (("init container", status.get("initContainerStatuses") or []), ("container", containers)):
        for one in found:
            ended = one.get("state", {}).get("terminated")
            if ended:
                yield what, one["name"], ended


def _reason(cause: str, how: str, words: str) -> Reason:
    words = " ".join(words.split())
    known, remedy = explain(words)
    return Reason(f"{cause}: {known}" if known else cause, remedy or REMEDIES.get(how, ""), words)
