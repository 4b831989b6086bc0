"""Finds the job that an earlier try of the step started, or starts it, and follows it to its end.

There is no separate timeout: a job may wait for a queue, an image or a node as long as the step may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stillhouse.core.errors import CrashElsewhere
from stillhouse.kubeflow.pods.process import SENTENCE
from stillhouse.kubeflow.trainjob.cluster import Cluster
from stillhouse.kubeflow.trainjob.own_pod import Plain

PAUSE = 3.0
"""Seconds between two looks: JobSet removes a failed node's pod at once, with any lines that were not read yet."""
INDEX = "batch.kubernetes.io/job-completion-index"
"""The label of a pod with its node's number."""
COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"


def condition(job: Plain, kind: str) -> Plain | None:
    """The job's condition of this kind if it is true, else None."""
    conditions = job.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind and one["status"] == "True"), None)


def state(job: Plain) -> str:
    """The job's state: how it ended, `Suspended` while a queue holds it back, or `Running`."""
    return next((kind for kind in (COMPLETE, FAILED, SUSPENDED) if condition(job, kind)), "Running")


def find_or_start(cluster: Cluster, job: Plain, done: Callable[[], bool]) -> None:
    """Leaves a job of this name that runs or waits, or has succeeded and is `done`: its results are there.

    Any other is deleted and started again: one that failed, and one whose results an earlier try took, but was killed
    before Kubeflow had them. Raises `InputError` for a job that the cluster refuses.
    """
    name = job["metadata"]["name"]
    while True:
        there = cluster.find(name)
        if there is None:
            if cluster.create(job):
                cluster.log(f"TrainJob {name}: started")
                return
        elif "deletionTimestamp" not in there["metadata"]:
            if state(there) != FAILED and (state(there) != COMPLETE or done()):
                cluster.log(f"TrainJob {name}: an earlier try of this step started it; following it")
                return
            cluster.delete(there)
        cluster.sleep(PAUSE)


@dataclass
class NodeLogs:
    """Shows each line of a job's nodes once in the step's own log."""

    cluster: Cluster
    last: dict[str, str] = field(default_factory=dict)
    """The time of each pod's last line. Kubernetes writes times with a fixed width, so their text sorts by time."""
    sentence: str = ""
    """The first sentence in which a node said why it ended."""

    def show(self, pod: Plain) -> None:
        """Shows what a pod has logged since the last call."""
        name, number = pod["metadata"]["name"], pod["metadata"]["labels"].get(INDEX, "?")
        before = self.last.get(name, "")
        for line in self.cluster.lines(name, before):
            moment, _, text = line.partition(" ")
            if moment > before:
                self.cluster.log(f"[node {number}] {text}")
                self.last[name] = moment
                if text.startswith(SENTENCE):
                    self.sentence = self.sentence or text.removeprefix(SENTENCE)


def follow(cluster: Cluster, name: str) -> None:
    """Returns when the job has succeeded, with all lines of its nodes shown.

    Until a node has started, it shows what the cluster warns of. Raises `CrashElsewhere` for a job that failed or was
    deleted.
    """
    logs, shown = NodeLogs(cluster), set[str]()
    while True:
        job = cluster.find(name)
        if job is None or "deletionTimestamp" in job["metadata"]:
            raise CrashElsewhere(f"TrainJob {name} was deleted while it ran; start the run again")
        for pod in cluster.pods_of(name):
            logs.show(pod)
        news = [f"TrainJob {name}: {state(job).lower()}", *([] if logs.last else cluster.trouble(name))]
        for line in news:
            if line not in shown:
                cluster.log(line)
        shown |= set(news)
        if state(job) == COMPLETE:
            return
        if failed := condition(job, FAILED):
            why = logs.sentence or f"{failed.get('reason')}: {failed.get('message')}"
            raise CrashElsewhere(
                f"TrainJob {name} failed: {why}; the lines of its nodes above say more, and a run with the same "
                "parameters continues from the last checkpoint"
            )
        cluster.sleep(PAUSE)
