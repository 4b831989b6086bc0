"""Whether a job has ended and why it failed, from the status of the job and its pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import CrashElsewhere, InputError
from stillhouse.kubeflow.cluster.failed import OUT_OF_MEMORY, REMEDIES
from stillhouse.kubeflow.trainjob.last_words import Said, newest, reason
from stillhouse.kubeflow.trainjob.logs import container_state, node_number

COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
DISRUPTED = "DisruptionTarget"
"""The condition of a pod that Kubernetes itself removes, for instance for one with a higher priority."""
EVICTED = ("Evicted", "Preempted", "Terminated", "NodeShutdown", "NodeLost", DISRUPTED)
"""Reasons of pods that were removed."""

Plain = dict[str, Any]


def condition(job: Plain, kind: str) -> Plain | None:
    """The job's condition of this kind if it is true, else None."""
    for one in job.get("status", {}).get("conditions", []):
        if one["type"] == kind and one["status"] == "True":
            return dict(one)
    return None


def state(job: Plain) -> str:
    """The job's state: how it ended, `Suspended` while a queue holds it back, or `Running`."""
    return next((kind for kind in (COMPLETE, FAILED, SUSPENDED) if condition(job, kind)), "Running")


@dataclass(frozen=True)
class NodeEnd:
    """How one node failed: its exit code (0 if it has none), and the reason and message of Kubernetes."""

    node: str
    code: int
    reason: str
    words: str
    moment: str

    @property
    def rank(self) -> tuple[int, str]:
        """Sorts the most informative end first: bad input causes all others, and a lost machine causes crashes."""
        if self.code in (2, 3):
            return (0, self.moment)
        return (1 if self.reason in (OUT_OF_MEMORY, *EVICTED) else 2, self.moment)


def ends(pods: Sequence[Plain]) -> list[NodeEnd]:
    """The nodes that failed, the most informative first."""
    found = []
    for pod in pods:
        status = pod.get("status", {})
        ended = container_state(pod).get("terminated", {})
        conditions = status.get("conditions", [])
        disrupted: Plain = next((one for one in conditions if one["type"] == DISRUPTED and one["status"] == "True"), {})
        why = status.get("reason") or disrupted.get("type") or ended.get("reason", "")
        code = int(ended.get("exitCode", 0))
        if code or status.get("phase") == FAILED:
            words = status.get("message") or disrupted.get("message") or ended.get("message", "")
            found.append(NodeEnd(node_number(pod), code, why, words.strip(), ended.get("finishedAt", "~")))
    return sorted(found, key=lambda end: end.rank)


def note_ends(seen: dict[str, NodeEnd], pods: Sequence[Plain]) -> None:
    """Records in `seen` how each node failed, by its number; a node that already has a new pod has not ended.

    A record stays when the node's pod is gone.
    """
    for pod in sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp", "")):
        seen.pop(node_number(pod), None)
        seen |= {end.node: end for end in ends([pod])}


def failure(job: Plain, seen: Iterable[NodeEnd], said: Mapping[str, Said]) -> InputError | CrashElsewhere:
    """The error of a failed job: `InputError` if a node ended with the exit code of bad input, else `CrashElsewhere`.

    `seen` has the ends of its nodes and `said` the last lines by pod name; both include pods that are gone.
    """
    name, ended = job["metadata"]["name"], condition(job, FAILED) or {}
    why = ": ".join(part for part in (ended.get("reason"), ended.get("message")) if part)
    if ended.get("reason") == "DeadlineExceeded":
        return CrashElsewhere(f"TrainJob {name} exceeded its time limit; raise `timeout_hours` of the placement")
    heard = newest(said)
    known = {node: NodeEnd(node, one.code, "", "", one.moment) for node, one in heard.items() if one.code is not None}
    known |= {end.node: end for end in seen}
    first = min(known.values(), key=lambda end: end.rank, default=None)
    if first is None:
        lines = "; ".join(f"node {node}: {one.last}" for node, one in heard.items() if one.last)
        left = (
            f"the last lines of its pods, which no longer exist: {lines}"
            if lines
            else "it has no pods left that could say why"
        )
        return CrashElsewhere(f"TrainJob {name} failed ({why}); {left}")
    where, lines_of_it = f"node {first.node}", heard[first.node].lines if first.node in heard else ()
    cause = reason(first.words.splitlines()) or reason(lines_of_it)
    if first.code in (2, 3):
        return InputError(cause or f"{where} received bad input; its lines say which")
    how = f"exit code {first.code}" + (f", {first.reason}" if first.reason else "")
    if first.reason == OUT_OF_MEMORY:
        return CrashElsewhere(f"{where} ran out of memory: {REMEDIES[OUT_OF_MEMORY]}")
    if first.reason in EVICTED:
        return CrashElsewhere(
            f"{where} was taken away ({first.reason}{': ' if first.words else ''}{first.words}); the retry continues "
            "from the last checkpoint"
        )
    crashed = f"{where} crashed ({how}){': ' if cause else ''}{cause}"
    return CrashElsewhere(f"{crashed}; TrainJob {name}: {why or FAILED}; its own lines above say where")
