"""Finds the job that an earlier try of the step started, or starts it, and follows it to its end.

There is no separate timeout: a job may wait for a queue, an image or a node as long as the step may. It is polled
every second while there is news, and less and less often while there is none, but at least every three seconds once a
node has started.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stillhouse.core.errors import CrashElsewhere
from stillhouse.kubeflow.trainjob.cluster import Cluster
from stillhouse.kubeflow.trainjob.exchange import Exchange
from stillhouse.kubeflow.trainjob.logs import NodeLogs, container_state
from stillhouse.kubeflow.trainjob.outcome import COMPLETE, FAILED, SUSPENDED, NodeEnd, failure, note_ends, state
from stillhouse.kubeflow.trainjob.parts import Parts

SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
LONGEST_WHILE_IT_RUNS = 3.0
"""JobSet removes a failed node's pod at once, with any lines that were not read yet."""

Plain = dict[str, Any]
Log = Callable[[str], None]


def find_or_start(cluster: Cluster, job: Plain, exchange: Exchange | Parts, log: Log) -> None:
    """Leaves a job of this name that runs, waits or has succeeded. A failed job is deleted and started again.

    Raises `InputError` for a job that the cluster refuses.
    """
    name, pause, deleted = job["metadata"]["name"], SHORTEST_PAUSE, ""
    while True:
        there = cluster.find(name)
        if there is None:
            exchange.clear()
            if cluster.create(job):
                log(f"TrainJob {name}: started, {sizes(job)}")
                return
            continue  # another try was faster
        going = "deletionTimestamp" in there["metadata"]
        if not going and state(there) != FAILED:
            log(f"TrainJob {name}: an earlier try of this step started it; following it")
            return
        if deleted != there["metadata"]["uid"]:
            deleted = there["metadata"]["uid"]
            log(f"TrainJob {name}: an earlier try of it failed or is being deleted; starting it again")
            if not going:
                cluster.delete(there)
        cluster.sleep(pause)
        pause = min(1.5 * pause, LONGEST_PAUSE)


def sizes(job: Plain) -> str:
    """How many nodes a job requests, and their size."""
    trainer = job["spec"]["trainer"]
    limits = ", ".join(f"{name} {amount}" for name, amount in trainer["resourcesPerNode"]["limits"].items())
    return f"{trainer['numNodes']} nodes of {trainer['numProcPerNode']} processes each, with {limits}"


def summary(cluster: Cluster, job: Plain, pods: list[Plain], nodes: int) -> str:
    """A job's state and, while nodes are missing, Kubernetes' warnings."""
    name = job["metadata"]["name"]
    begun = sum(1 for pod in pods if {"running", "terminated"} & container_state(pod).keys())
    if state(job) in (COMPLETE, FAILED):
        return f"TrainJob {name}: {state(job).lower()}"
    line = f"TrainJob {name}: {state(job).lower()}, {begun} of {nodes} nodes have started"
    waits = begun < nodes and state(job) != SUSPENDED
    return "\n  ".join([line, *cluster.trouble(name)]) if waits else line


def follow(cluster: Cluster, name: str, nodes: int, log: Log) -> None:
    """Returns when the job has succeeded, with all lines of its nodes shown.

    Raises `InputError` or `CrashElsewhere`, depending on its nodes, for a job that failed or was deleted.
    """
    logs, line, pause = NodeLogs(cluster, log), "", SHORTEST_PAUSE
    seen: dict[str, NodeEnd] = {}
    while True:
        job = cluster.find(name)
        if job is None or "deletionTimestamp" in job["metadata"]:
            raise CrashElsewhere(f"TrainJob {name} was deleted while it ran; the retry starts it again")
        pods = cluster.pods_of(name)
        note_ends(seen, pods)
        before, line = line, summary(cluster, job, pods, nodes)
        if line != before:
            log(line)
        news = [line != before, *(logs.show(pod) for pod in pods)]
        if state(job) == COMPLETE:
            return
        if state(job) == FAILED:
            raise failure(job, seen.values(), logs.said)
        longest = LONGEST_WHILE_IT_RUNS if any(map(container_state, pods)) else LONGEST_PAUSE
        pause = SHORTEST_PAUSE if any(news) else min(1.5 * pause, longest)
        cluster.sleep(pause)
