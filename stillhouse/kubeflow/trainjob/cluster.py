"""The calls to Kubernetes about a step's job, repeated with growing pauses until they are answered.

An API server that restarts, is overloaded or answers 410 should not end days of training: only the step's own timeout
ends the retries. Permanent refusals (a missing permission, an unknown field) are reported with the remedy.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.kubernetes_api import Api, Plain, Unseen
from stillhouse.kubeflow.trainjob.manifest import GROUP, NODE, PLURAL, VERSION

POD_LABEL = "jobset.sigs.k8s.io/jobset-name"
"""The label that finds the pods of a job; Trainer gives its JobSet the job's name."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
ASK_AGAIN = (408, 410, 425, 429)


class Cluster(Api):
    """The namespace of the step's pod. Calls wait for an answer and raise `Unseen` only for one that is final."""

    timeout = (10, 60)

    def __init__(
        self, client: Any, namespace: str, log: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(client, namespace)
        self.log, self.sleep = log, sleep
        self._jobs = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"

    def pod(self, name: str) -> Plain:
        return dict(json.loads(self._read(f"{self._here}/pods/{name}")))

    def find(self, name: str) -> Plain | None:
        """The job, or None."""
        try:
            return dict(json.loads(self._read(f"{self._jobs}/{name}")))
        except Unseen as error:
            if error.status == 404:
                return None
            raise

    def create(self, job: Plain) -> bool:
        """Create the job, unless a job of this name exists. Return whether it was created."""
        try:
            self._read(self._jobs, "POST", job)
        except Unseen as error:
            if error.status == 409:
                return False
            if error.status == 404:
                raise InputError(
                    "this cluster has no TrainJobs: install Kubeflow Trainer 2.3 and the component "
                    "manifests/components/trainer, or give the placement `nodes: 1`"
                ) from None
            raise InputError(f"TrainJob {job['metadata']['name']} was refused: {error.said}") from None
        return True

    def delete(self, job: Plain) -> None:
        """Delete this job and its pods; a later job of the same name stays."""
        own = {"preconditions": {"uid": job["metadata"]["uid"]}, "propagationPolicy": "Foreground"}
        try:
            self._read(f"{self._jobs}/{job['metadata']['name']}", "DELETE", own)
        except Unseen as error:
            if error.status not in (404, 409):  # gone, or another job of this name by now
                raise

    def pods_of(self, job: str) -> list[Plain]:
        return self.pods(f"{POD_LABEL}={job}")

    def lines(self, pod: str, since: str) -> list[str]:
        """The log of a node from this time on, each line after its time; empty if it has not started, or is gone."""
        more = {"sinceTime": since} if since else {}
        return list(filter(None, self.log_of(pod, NODE, timestamps="true", **more)))

    def trouble(self, job: str) -> list[str]:
        """What the cluster warns of about a job and its pods."""
        found = []
        for event in self.warnings():
            about = event.get("involvedObject", {})
            name = about.get("name", "")
            if name == job or name.startswith(f"{job}-"):
                found.append(f"{about.get('kind')} {name}: {event.get('reason')}: {event.get('message')}")
        return found

    def _read(self, path: str, method: str = "GET", body: Plain | None = None, **query: Any) -> str:
        pause = FIRST_PAUSE
        while True:
            try:
                return super()._read(path, method, body, **query)
            except Unseen as error:
                if error.status in (401, 403):
                    raise InputError(
                        f"Kubernetes refuses this step access: {error.said}. Give the run the account "
                        "`stillhouse-steps`, and its namespace the roles of manifests/components/trainer"
                    ) from None
                if 0 < error.status < 500 and error.status not in ASK_AGAIN:
                    raise
                if pause == FIRST_PAUSE:
                    self.log(f"{error}; the nodes continue; trying again")
            self.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
