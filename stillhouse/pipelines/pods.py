"""Says why the pods of a run do not begin, and why one failed, while `submit --wait` waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stillhouse.errors import InputError
from stillhouse.kubernetes.cluster import waiting
from stillhouse.kubernetes.cluster.api import Api, NoSuchKind, Unseen, connect
from stillhouse.kubernetes.cluster.failed import MAIN, failure
from stillhouse.pipelines.place import TASK_LABEL
from stillhouse.pipelines.watched import RUN_LABEL

Log = Callable[[str], None]
Plain = dict[str, Any]

LINES = 200
"""Of a failed pod's log, from its end."""


class PodWatch:
    """The pods of one run. Each reason is reported once, however many pods it holds back, and nothing is repeated.

    Where Kubernetes cannot be asked, or not about something, that is reported once too, and the rest goes on.
    """

    def __init__(
        self, api: Api, run_id: str, log: Log, every_seconds: float = 15.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.api, self.log, self.every_seconds, self.clock = api, log, every_seconds, clock
        self._label = f"{RUN_LABEL}={run_id}"
        self._reported: set[str] = set()
        self._gone: set[str] = set()
        """What may not be looked at, and is not asked for again."""
        self._ended: set[str] = set()
        """The pods whose failure was looked at."""
        self._next = 0.0
        self._answered = False

    def look(self, now: bool = False) -> None:
        """Looks, unless it did so a moment ago; `now` it does in any case."""
        if not now and self.clock() < self._next:
            return
        self._next = self.clock() + self.every_seconds
        pods = self._ask("pods", lambda: self.api.pods(self._label))
        gated = any(waiting.waits(pod) and waiting.is_gated(pod) for pod in pods)
        workloads = self._ask("workloads of Kueue", self.api.workloads) if gated else []
        starting = any(waiting.is_starting(pod) for pod in pods)
        events = self._ask("events", self.api.warnings) if starting else []
        held: dict[waiting.Reason, list[str]] = {}
        for pod in pods:
            for reason in waiting.reasons(pod, events, workloads):
                held.setdefault(reason, []).append(task_of(pod))
        for workflow in self._ask("workflows", lambda: self.api.workflows(self._label)):
            for reason in waiting.refusals(workflow):
                held.setdefault(reason, []).append("a task")
        for reason, tasks in held.items():
            more = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
            self._report(reason.cause, f"  {tasks[0]}{more} cannot begin: {reason}")
        for pod in pods:
            if pod.get("status", {}).get("phase") == "Failed":
                self._report_end(pod)

    def _report_end(self, pod: Plain) -> None:
        """What the step in a failed pod said for a person, else why the pod failed. Its tries say the same: once."""
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

    def _ask(self, what: str, ask: Callable[[], list[Any]]) -> list[Any]:
        """What Kubernetes answers; nothing where it does not, which is reported once."""
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
                self._report(what, f"  the {what} of namespace {self.api.namespace} cannot be looked at: {error}")
            elif not self._answered:  # later on it is a bad moment, and the next look may be better
                self._gone.add("all")
                self._report("all", f"  why pods wait is not known: {error}")
        return []

    def _report(self, key: str, line: str) -> None:
        if key not in self._reported:
            self._reported.add(key)
            self.log(line)


def task_of(pod: Plain) -> str:
    """The step that a pod is of; the pod's name where it is Kubeflow's own."""
    metadata = pod["metadata"]
    return str(metadata.get("labels", {}).get(TASK_LABEL) or metadata["name"])


def watch_pods(run_id: str, namespace: str, context: str, log: Log) -> PodWatch | None:
    """A watch over a run's pods; None, after a line in the log, where no Kubernetes is known."""
    try:
        return PodWatch(Api(connect("why pods wait is not known, which needs", context), namespace), run_id, log)
    except InputError as error:
        log(f"  {error}")
        return None
