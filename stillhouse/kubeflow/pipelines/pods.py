"""Shows what Kubernetes says about the pods of a run, and how a refresh ended, while `submit --wait` waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.kubernetes_api import Api, Plain, Unseen, connect
from stillhouse.kubeflow.pipelines.place import TASK_LABEL
from stillhouse.kubeflow.pods.process import SENTENCE
from stillhouse.kubeflow.trainjob.own_pod import CONTAINER, RUN_LABEL

Log = Callable[[str], None]

LINES = 200
"""How many lines to read from the end of a pod's log."""
DECIDING = ("plan-refresh", "release-refresh")
"""The tasks, one of which reports how a refresh ended."""


class PodWatch:
    """Watches the pods of one run. Each message is shown once, no matter how many pods it is about."""

    def __init__(self, api: Api, run_id: str, log: Log) -> None:
        self.api, self.log = api, log
        self._label = f"{RUN_LABEL}={run_id}"
        self._shown: set[str] = set()
        self._ended: set[str] = set()
        """The pods that failed or made the decision, and were already examined."""
        self.outcome = ""
        """How a refresh ended, in the words of its task, such as "refused: …"; "" if that could not be read."""

    def look(self) -> None:
        """Shows what is new."""
        try:
            self._look()
        except Unseen as error:
            self._show("  ", f"cannot read the pods of namespace {self.api.namespace}: {error}")

    def _look(self) -> None:
        pods = self.api.pods(self._label)
        waiting = {pod["metadata"]["name"]: pod for pod in pods if pod["status"].get("phase") == "Pending"}
        for pod in waiting.values():
            for one in pod["status"].get("conditions", []):
                if one["type"] == "PodScheduled" and one["status"] == "False":
                    self._show(f"  {task_of(pod)} waits: ", one.get("message", ""))
        for event in self.api.warnings() if waiting else []:
            if event["involvedObject"].get("name") in waiting:
                pod = waiting[event["involvedObject"]["name"]]
                self._show(f"  {task_of(pod)} waits: ", f"{event.get('reason')}: {event.get('message')}")
        for pod in pods:
            name, task, phase = pod["metadata"]["name"], task_of(pod), pod["status"].get("phase")
            decided = phase == "Succeeded" and task in DECIDING
            if name in self._ended or not (decided or phase == "Failed"):
                continue
            said = last_sentence(self.api.log_of(name, CONTAINER, tailLines=LINES))
            self._ended.add(name)
            if decided:
                self.outcome = said or self.outcome
            self._show(f"  {task} says: ", said or "; ".join(ends_of(pod)))

    def _show(self, before: str, words: str) -> None:
        if words and words not in self._shown:
            self._shown.add(words)
            self.log(f"{before}{words}".replace("\n", "\n  "))


def last_sentence(lines: Sequence[str]) -> str:
    """The sentence in which a step said why it ended, with any list that follows it; "" if there is none."""
    found = re.findall(rf"^{SENTENCE}(.*(?:\n  .*)*)", "\n".join(lines), re.MULTILINE)
    return str(found[-1]) if found else ""


def ends_of(pod: Plain) -> Iterator[str]:
    """How a pod and its containers failed, in Kubernetes' words."""
    status = pod["status"]
    yield from filter(None, (status.get("reason"), status.get("message")))
    for one in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        ended = one.get("state", {}).get("terminated") or {}
        if ended.get("exitCode"):
            yield f"{one['name']} ended with exit code {ended['exitCode']} ({ended.get('reason')})"


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
