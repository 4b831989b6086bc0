"""Reports why the pods of a run do not start, why one failed and how a refresh ended, while `submit --wait` waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.cluster import waiting
from stillhouse.kubeflow.cluster.api import Api, NoSuchKind, Unseen, connect
from stillhouse.kubeflow.cluster.failed import MAIN, failure
from stillhouse.kubeflow.pipelines.place import TASK_LABEL
from stillhouse.kubeflow.trainjob.own_pod import RUN_LABEL

Log = Callable[[str], None]
Plain = dict[str, Any]

LINES = 200
"""How many lines to read from the end of a pod's log."""
DECIDING = ("plan-refresh", "release-refresh")
"""The tasks, one of which reports how a refresh ended."""


class PodWatch:
    """Watches the pods of one run. Each reason is reported once, no matter how many pods it holds back.

    If Kubernetes cannot be asked, or not about some kind of object, that is also reported once, and the rest continues.
    """

    def __init__(
        self, api: Api, run_id: str, log: Log, every_seconds: float = 15.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.api, self.log, self.every_seconds, self.clock = api, log, every_seconds, clock
        self._label = f"{RUN_LABEL}={run_id}"
        self._reported: set[str] = set()
        self._gone: set[str] = set()
        """Objects that may not be read and are not requested again."""
        self._ended: set[str] = set()
        """The pods that failed or made the decision, and were already examined."""
        self._next = 0.0
        self._answered = False
        self.outcome = ""
        """How a refresh ended, in the words of its task, such as "refused: …"; "" if that could not be read."""

    def look(self, now: bool = False) -> None:
        """Looks unless it did so a moment ago; always with `now`."""
        if not now and self.clock() < self._next:
            return
        self._next = self.clock() + self.every_seconds
        pods = self._ask("pods", lambda: self.api.pods(self._label))
        gated = any(waiting.waits(pod) and waiting.is_gated(pod) for pod in pods)
        workloads = self._ask("workloads of Kueue", self.api.workloads) if gated else []
        starting = any(waiting.is_starting(pod) for pod in pods)
        events = self._ask("events", self.api.warnings) if starting else []
        waiting_tasks: dict[waiting.Reason, list[str]] = {}
        for pod in pods:
            for reason in waiting.reasons(pod, events, workloads):
                waiting_tasks.setdefault(reason, []).append(task_of(pod))
        for workflow in self._ask("workflows", lambda: self.api.workflows(self._label)):
            for reason in waiting.refusals(workflow):
                waiting_tasks.setdefault(reason, []).append("a task")
        for reason, tasks in waiting_tasks.items():
            more = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
            self._report(reason.cause, f"  {tasks[0]}{more} cannot start: {reason}")
        for pod in pods:
            phase = pod.get("status", {}).get("phase")
            if phase == "Failed":
                self._report_end(pod)
            elif phase == "Succeeded" and task_of(pod) in DECIDING:
                self._report_outcome(pod)

    def _report_end(self, pod: Plain) -> None:
        """Reports the error message of the step in a failed pod, or else why the pod failed, once for all its tries."""
        name, task = pod["metadata"]["name"], task_of(pod)
        if name in self._ended:
            return
        self._ended.add(name)
        said = waiting.said(self._ask("logs", lambda: self.api.last_lines(name, MAIN, LINES)))
        if said:
            self._report(said, f"  {task} says: {said}".replace("\n", "\n  "))
            return
        reason = failure(pod) or failure(pod, self._ask("events", self.api.warnings))
        if reason:
            self._report(f"{task} {reason.cause}", f"  {task} failed: {reason}")

    def _report_outcome(self, pod: Plain) -> None:
        """Reports what a refresh released or refused, which does not show in the states of its tasks."""
        name = pod["metadata"]["name"]
        lines = [] if name in self._ended else self._ask("logs", lambda: self.api.last_lines(name, MAIN, LINES))
        if lines:
            self._ended.add(name)
        said = waiting.said(lines)
        if said:
            self.outcome = said
            self._report(said, f"  {task_of(pod)} says: {said}".replace("\n", "\n  "))

    def _ask(self, what: str, ask: Callable[[], list[Any]]) -> list[Any]:
        """Kubernetes' answer, or an empty list if there is none, which is reported once."""
        if "all" in self._gone or what in self._gone:
            return []
        try:
            found = ask()
            self._answered = True
            return found
        except NoSuchKind:
            self._gone.add(what)
        except Unseen as error:
            if error.reached:
                if error.refused:
                    self._gone.add(what)
                self._report(what, f"  cannot read the {what} of namespace {self.api.namespace}: {error}")
            elif not self._answered:  # after a first answer it is a temporary failure, and the next look may work
                self._gone.add("all")
                self._report("all", f"  cannot determine why pods are waiting: {error}")
        return []

    def _report(self, key: str, line: str) -> None:
        if key not in self._reported:
            self._reported.add(key)
            self.log(line)


def task_of(pod: Plain) -> str:
    """The step of a pod; the pod's name if it is Kubeflow's own."""
    metadata = pod["metadata"]
    return str(metadata.get("labels", {}).get(TASK_LABEL) or metadata["name"])


def watch_pods(run_id: str, namespace: str, context: str, log: Log) -> PodWatch | None:
    """A watch over a run's pods; None, after a line in the log, if there is no Kubernetes connection."""
    try:
        return PodWatch(Api(connect("determining why pods are waiting needs", context), namespace), run_id, log)
    except InputError as error:
        log(f"  {error}")
        return None
