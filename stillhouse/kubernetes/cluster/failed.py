"""Why a pod failed that said nothing for a person: it never started, was killed, or was taken away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stillhouse.kubernetes.cluster.remedies import explain
from stillhouse.kubernetes.cluster.waiting import Reason, of_message

MAIN = "main"
"""The container of the step itself; Argo's own is beside it."""
NEVER_STARTED = ("StartError", "ContainerCannotRun")
OUT_OF_MEMORY = "OOMKilled"
RESUMES = "a run with the same parameters goes on from its last checkpoint"
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
    """Why a pod failed, from its status, else from the last of the warnings about it; None where neither says.

    An init container goes first: what comes after one that failed never started.
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
    """The containers that have ended: what each is, its name, and how it ended."""
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
