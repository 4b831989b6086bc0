"""Shows each line of the nodes once in the step's own log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stillhouse.kubeflow.trainjob.cluster import Cluster
from stillhouse.kubeflow.trainjob.last_words import Said
from stillhouse.kubeflow.trainjob.manifest import NODE

MARGIN = 30
"""Seconds to read again, since clocks differ; the times of the lines show which ones are new."""
INDEX = "batch.kubernetes.io/job-completion-index"

Plain = dict[str, Any]


def container_state(pod: Plain) -> Plain:
    """The state of a node's container: `waiting`, `running` or `terminated`, with its details; {} before that."""
    for status in pod.get("status", {}).get("containerStatuses", []):
        if status["name"] == NODE:
            return dict(status.get("state", {}))
    return {}


def node_number(pod: Plain) -> str:
    """The number that Kubernetes gives a pod's node; the pod's name if unknown."""
    metadata = pod["metadata"]
    places = (metadata.get("labels", {}), metadata.get("annotations", {}))
    return next((place[INDEX] for place in places if INDEX in place), metadata["name"])


@dataclass
class NodeLogs:
    """Reads the new log lines of a job's pods. `said` keeps the last lines by pod name."""

    cluster: Cluster
    show_line: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    said: dict[str, Said] = field(default_factory=dict)
    """Kubernetes writes times with a fixed width, so their text sorts by time."""
    _read_at: dict[str, float] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)

    def show(self, pod: Plain) -> bool:
        """Shows what a pod has logged since the last call; returns whether there was anything."""
        name, state = pod["metadata"]["name"], container_state(pod)
        if name in self._ended or not {"running", "terminated"} & state.keys():
            return False
        since = None
        if name in self._read_at:
            since = int(self.clock() - self._read_at[name]) + MARGIN
        begun = self.clock()
        said = self.said.setdefault(name, Said(node_number(pod)))
        before = said.moment
        for line in self.cluster.lines(name, since):
            moment, _, text = line.partition(" ")
            if moment > before:
                self.show_line(f"[node {said.node}] {text}")
                said.lines.append(text)
                said.moment = moment
        self._read_at[name] = begun
        if "terminated" in state:  # it ended before its log was read, so this was all of it
            self._ended.add(name)
        return said.moment > before
