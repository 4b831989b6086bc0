"""The reported reason of a failed job, from what Kubernetes says about the job and its pods."""

from __future__ import annotations

from typing import Any

import pytest

from stillhouse.core.errors import CrashElsewhere, InputError
from stillhouse.kubeflow.trainjob.outcome import NodeEnd, ends, failure, note_ends


def job(reason: str = "FailedJobs", words: str = "jobset failed") -> dict[str, Any]:
    failed = {"type": "Failed", "status": "True", "reason": reason, "message": words}
    return {"metadata": {"name": "j"}, "status": {"conditions": [failed]}}


def pod(
    number: int, code: int, reason: str = "Error", words: str = "", second: int = 0, **status: Any
) -> dict[str, Any]:
    ended = {"exitCode": code, "reason": reason, "message": words, "finishedAt": f"2026-01-01T00:00:{second:02}Z"}
    entry = {"name": "node", "state": {"terminated": ended}}
    labels = {"batch.kubernetes.io/job-completion-index": str(number)}
    content = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [entry]} | status
    return {"metadata": {"name": f"j-{number}", "labels": labels}, "status": content}


def evicted(number: int) -> dict[str, Any]:
    """Return a pod that was evicted because its node ran out of memory. Its container has no state any more."""
    found = pod(number, 0)
    words = "The node was low on resource: memory"
    found["status"] = {"phase": "Failed", "reason": "Evicted", "message": words}
    return found


DISRUPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "message": "Kueue: preempted by j2"}]}
SENTENCE = "Traceback (most recent call last):\nstillhouse: --tokens does not exist\n"
CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], type[Exception], str]] = {
    "the first crash": (job(), [pod(0, 1, second=9), pod(1, 1, second=3)], CrashElsewhere, "^node 1 crashed"),
    "bad input goes before an earlier crash": (
        job(),
        [pod(0, 2, words=SENTENCE, second=9), pod(1, 1, second=3)],
        InputError,
        "^--tokens does not exist$",
    ),
    "bad input without a sentence": (job(), [pod(0, 2)], InputError, "node 0 received bad input"),
    "memory goes before the crashes that follow": (
        job(),
        [pod(0, 1, second=3), pod(1, 137, "OOMKilled", second=4)],
        CrashElsewhere,
        "^node 1 ran out of memory",
    ),
    "an eviction": (job(), [pod(0, 1, second=3), evicted(1)], CrashElsewhere, r"node 1 was taken away \(Evicted: The"),
    "a preemption": (
        job(),
        [pod(0, 1, second=3), pod(1, 143, second=4, **DISRUPTED)],
        CrashElsewhere,
        "node 1 was taken away .*preempted by j2.*last checkpoint",
    ),
    "too long": (job("DeadlineExceeded"), [pod(0, 143)], CrashElsewhere, "raise `timeout_hours`"),
    "nobody left": (job(), [], CrashElsewhere, r"\(FailedJobs: jobset failed\); it has no pods left"),
    "one that ended well says nothing": (job(), [pod(0, 0), pod(1, 1, second=5)], CrashElsewhere, "^node 1 crashed"),
}


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_failure_gets_its_message(case: str) -> None:
    given, pods, kind, message = CASES[case]
    with pytest.raises(kind, match=message):
        raise failure(given, ends(pods), {})


LATER, SOONER = "2026-01-01T00:00:09.5Z", "2026-01-01T00:00:03.5Z"


def test_a_node_that_was_taken_away_and_came_back_did_not_fail() -> None:
    """The end of a node is remembered after its pod is deleted, until the node has a new pod."""
    seen: dict[str, NodeEnd] = {}
    note_ends(seen, [pod(0, 1), pod(1, 143, second=4, **DISRUPTED)])
    note_ends(seen, [pod(0, 1)])
    assert sorted(seen) == ["0", "1"]
    note_ends(seen, [pod(1, 0)])
    assert sorted(seen) == ["0"]
    old, new = pod(0, 1), pod(0, 0)
    old["metadata"]["creationTimestamp"], new["metadata"]["creationTimestamp"] = SOONER, LATER
    note_ends(seen, [new, old])
    assert not seen
