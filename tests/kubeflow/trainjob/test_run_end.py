"""When a step's pod must stop, its job survives a preemption and a silent API server, but not the end of the run."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import FakeCluster
from learning_step import good_course, run

from stillhouse.kubeflow.trainjob.cluster import BRIEF_TIMEOUT, BRIEF_TRIES, Cluster

GRACE_SECONDS = 30
"""The default time between SIGTERM and SIGKILL, both for pods and for the containers of a run that Argo ends."""


def ended_by_signal(fake: FakeCluster, cluster: Cluster, tokens: Path, out: Path, **workflow: Any) -> None:
    """Stop the pod while its job runs, with the fields of `workflow` in the record of the run."""

    def end() -> None:
        if fake.workflow is not None:
            fake.workflow |= workflow
        os.kill(os.getpid(), signal.SIGTERM)

    fake.script = [*good_course(fake)[:4], end]
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as raised:
        run(cluster, tokens, out)
    assert raised.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before


RUNS: dict[str, tuple[dict[str, Any], str]] = {
    "preempted": ({}, ""),
    "terminated in Kubeflow": ({"spec": {"activeDeadlineSeconds": 0}}, "its run was terminated"),
    "stopped by Argo": ({"spec": {"shutdown": "Stop"}}, "its run was terminated"),
    "ended": ({"status": {"phase": "Failed"}}, "its run has ended"),
    "being deleted": ({"metadata": {"uid": "w-1", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, "its run was deleted"),
    "another of this name": ({"metadata": {"uid": "w-2"}}, "its run was deleted"),
}


@pytest.mark.parametrize("case", RUNS)
def test_the_job_continues_unless_the_run_is_over(
    case: str, fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    workflow, over = RUNS[case]
    ended_by_signal(fake, cluster, tokens, tmp_path / "out", **workflow)
    [job] = fake.jobs.values()
    assert ("deletionTimestamp" in job["metadata"]) == bool(over)
    assert logged[-1].startswith("this pod is being terminated")
    assert (
        (over in logged[-1] and "deleted TrainJob" in logged[-1])
        if over
        else "the next try of this step finds it" in logged[-1]
    )


@pytest.mark.parametrize("bad", [500, 403])
def test_the_job_continues_if_the_state_of_the_run_is_unknown(
    bad: int | str, fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    pauses: list[float] = []
    course = good_course(fake)[:4]

    def end() -> None:
        fake.weather = [bad] * 100
        cluster.sleep = pauses.append
        os.kill(os.getpid(), signal.SIGTERM)

    fake.script = [*course, end]
    with pytest.raises(SystemExit):
        run(cluster, tokens, tmp_path / "out")
    [name] = fake.jobs
    assert "deletionTimestamp" not in fake.only_job()["metadata"]
    assert f"`kubectl -n stillhouse delete trainjob {name}` frees its nodes" in logged[-1]
    assert sum(pauses) + BRIEF_TRIES * sum(BRIEF_TIMEOUT) < GRACE_SECONDS
