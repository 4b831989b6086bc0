"""What happens to the job when the step's pod has to end: it outlives a preemption, but not the end of its run.

A preempted, evicted or drained pod gets the same SIGTERM as a pod whose run the user terminates. The run's workflow
distinguishes them: Kubeflow Pipelines terminates a run by setting a deadline of zero seconds in it, and Argo ends the
pods only after reading that.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.trainjob.cluster import Cluster, NoAnswer

TERMINATED = 128 + signal.SIGTERM
ENDED = ("Succeeded", "Failed", "Error")
"""Phases of a workflow after which none of its pods is retried."""

Plain = dict[str, Any]
Log = Callable[[str], None]


class _Terminated(SystemExit):
    """Raised wherever the process is when the signal arrives; callers must not treat it as an error of their own."""


def why_over(workflow: Plain | None, uid: str) -> str:
    """Why the run that owns the pod will not retry the step; "" if it may."""
    if workflow is None or workflow["metadata"].get("uid") != uid or "deletionTimestamp" in workflow["metadata"]:
        return "its run was deleted"
    if is_terminated(workflow):
        return "its run was terminated"
    return "its run has ended" if workflow.get("status", {}).get("phase") in ENDED else ""


def is_terminated(workflow: Plain) -> bool:
    """Whether a user terminated the run, which may not have ended yet."""
    spec = workflow.get("spec", {})
    return spec.get("activeDeadlineSeconds") == 0 or bool(spec.get("shutdown"))


@contextmanager
def left_for_the_retry(cluster: Cluster, name: str, owner: Plain) -> Iterator[None]:
    """While the block runs, SIGTERM ends this process but leaves the job `name` for the next try of the step.

    The job is deleted if there will be no retry, because the run, the `owner`, is over. Signals only reach the main
    thread; in any other thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        raise _Terminated(TERMINATED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _Terminated:
        _leave_or_delete(cluster.brief(), name, owner, cluster.log)
        raise SystemExit(TERMINATED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave_or_delete(cluster: Cluster, name: str, owner: Plain, log: Log) -> None:
    """Decides quickly. Without an answer, the job continues: losing a training costs more than its nodes."""
    left = f"TrainJob {name} continues, and the next try of this step finds it"
    remedy = f"if the run is over, `kubectl -n {cluster.namespace} delete trainjob {name}` frees its nodes"
    if owner["kind"] != "Workflow":
        log(f"this pod is being terminated; {left}")
        return
    try:
        over = why_over(cluster.workflow(owner["name"]), owner["uid"])
        if not over:
            log(f"this pod is being terminated; {left}")
            return
        job = cluster.find(name)
        if job is not None:
            cluster.delete(job)
        log(f"this pod is being terminated and {over}: deleted TrainJob {name}")
    except NoAnswer as error:
        log(f"this pod is being terminated, but Kubernetes does not answer in time ({error}); {left}; {remedy}")
    except InputError as error:  # no permission to look
        log(f"this pod is being terminated; {left}; {remedy}. {error}")
