"""The reported reason of a failed job, from what Kubernetes says about the job and its pods."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from stillhouse.core.errors import CrashElsewhere, InputError
from stillhouse.kubeflow.trainjob.last_words import Said
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


CRASH = """\
Traceback (most recent call last):
  File "train.py", line 7, in step
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
stillhouse: this is a crash, not bad input; the lines above say where it happened
E1123 failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: python3
node ended with exit code 1"""
BAD_INPUT = """\
stillhouse: --tokens does not exist
E1123 failed (exitcode: 2) local_rank: 0 (pid: 7) of binary: python3
node ended with exit code 2

"""
LATER, SOONER = "2026-01-01T00:00:09.5Z", "2026-01-01T00:00:03.5Z"
GONE: dict[str, tuple[dict[str, tuple[str, str]], type[Exception], str]] = {
    "bad input goes before an earlier crash": (
        {"0": (SOONER, CRASH), "1": (LATER, BAD_INPUT)},
        InputError,
        "^--tokens does not exist$",
    ),
    "a crash, by the error of its stack trace": (
        {"0": (LATER, "step 6\nnode ended with exit code 1"), "1": (SOONER, CRASH)},
        CrashElsewhere,
        r"^node 1 crashed \(exit code 1\): torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB; ",
    ),
    "killed before they could say so": (
        {"1": (SOONER, "step 5\n"), "0": (LATER, "step 6")},
        CrashElsewhere,
        r"the last lines of its pods, which no longer exist: node 0: step 6; node 1: step 5$",
    ),
}


@pytest.mark.parametrize("case", GONE)
def test_a_failure_is_named_by_the_last_lines_of_pods_that_are_gone(case: str) -> None:
    lines, kind, message = GONE[case]
    said = {f"pod-{node}": Said(node, moment, deque(text.splitlines())) for node, (moment, text) in lines.items()}
    with pytest.raises(kind, match=message):
        raise failure(job(), [], said)


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
