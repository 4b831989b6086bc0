"""What a failed job is said to have failed for, from what Kubernetes tells of the job and its pods."""

from __future__ import annotations

from typing import Any

import pytest

from stillhouse.errors import CrashElsewhere, InputError
from stillhouse.trainjob.outcome import failure, state


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
    """A pod that its node was too small for: its container has no state any more."""
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
    "bad input without a sentence": (job(), [pod(0, 2)], InputError, "node 0 was given bad input"),
    "memory goes before the crashes that follow": (
        job(),
        [pod(0, 1, second=3), pod(1, 137, "OOMKilled", second=4)],
        CrashElsewhere,
        "^node 1 ran out of memory",
    ),
    "an eviction": (
        job(),
        [pod(0, 1, second=3), evicted(1)],
        CrashElsewhere,
        r"node 1 was taken away \(Evicted: The",
    ),
    "a preemption": (
        job(),
        [pod(0, 1, second=3), pod(1, 143, second=4, **DISRUPTED)],
        CrashElsewhere,
        "node 1 was taken away .*preempted by j2.*last checkpoint",
    ),
    "too long": (job("DeadlineExceeded"), [pod(0, 143)], CrashElsewhere, "raise `timeout_hours`"),
    "nobody left": (job(), [], CrashElsewhere, "FailedJobs: jobset failed.*none of its pods is left"),
    "one that ended well says nothing": (job(), [pod(0, 0), pod(1, 1, second=5)], CrashElsewhere, "^node 1 crashed"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_failure_is_named(case: str) -> None:
    given, pods, kind, message = CASES[case]
    with pytest.raises(kind, match=message):
        raise failure(given, pods)


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], "Running"),
        ([("Suspended", "True")], "Suspended"),
        ([("Suspended", "False")], "Running"),
        ([("Suspended", "False"), ("Complete", "True")], "Complete"),
        ([("Suspended", "True"), ("Failed", "True")], "Failed"),
    ],
)
def test_the_state_is_that_of_the_condition_that_holds(conditions: list[tuple[str, str]], expected: str) -> None:
    listed = [{"type": kind, "status": status} for kind, status in conditions]
    assert state({"status": {"conditions": listed}}) == expected


def test_a_new_job_has_no_status_yet() -> None:
    assert state({"metadata": {"name": "j"}}) == "Running"
