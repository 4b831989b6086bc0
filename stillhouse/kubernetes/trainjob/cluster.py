"""The calls to Kubernetes about a step's job, repeated with growing pauses until they are answered.

An API server that restarts, is overloaded or answers 410 should not end days of training: only the step's own timeout
ends the retries. Permanent refusals (a missing permission, an unknown field) are reported with the remedy.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from typing import Any, Self

from stillhouse.errors import InputError
from stillhouse.kubernetes.cluster.api import message
from stillhouse.kubernetes.cluster.remedies import with_remedy
from stillhouse.kubernetes.trainjob.manifest import GROUP, NODE, PLURAL, VERSION

POD_LABEL = "jobset.sigs.k8s.io/jobset-name"
"""The label that finds the pods of a job; Trainer gives its JobSet the job's name."""
LONGEST_PAUSE = 60.0
REQUEST_TIMEOUT = (10, 60)
"""Seconds to connect, and to wait for each part of the answer."""
ASK_AGAIN = (408, 410, 425, 429)
BRIEF_TIMEOUT, BRIEF_TRIES = (2, 4), 3
"""The same for a pod that has to end, and its total number of failed calls: 20 of its 30 seconds."""
WORKFLOWS = ("argoproj.io", "v1alpha1", "workflows")
"""The kind of object that runs a pipeline in Kubeflow Pipelines: group, version and plural."""

Plain = dict[str, Any]


class NoAnswer(Exception):
    """Kubernetes did not answer in the short time available."""


class Cluster:
    """The namespace of the step's pod, over a `kubernetes.client.ApiClient`."""

    def __init__(
        self,
        client: Any,
        namespace: str,
        log: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        from kubernetes.client import CoreV1Api, CustomObjectsApi

        self.namespace, self.log, self.sleep = namespace, log, sleep
        self._core, self._custom = CoreV1Api(client), CustomObjectsApi(client)
        self._kind = (GROUP, VERSION, namespace, PLURAL)
        self._tries_left: int | None = None

    def brief(self) -> Self:
        """A copy for a pod with only seconds left: slow answers raise `NoAnswer`."""
        other = copy.copy(self)
        other._tries_left = BRIEF_TRIES
        return other

    def pod(self, name: str) -> Plain:
        found = self._read(self._core.read_namespaced_pod, name, self.namespace)
        assert found is not None
        return dict(json.loads(found))

    def workflow(self, name: str) -> Plain | None:
        """The workflow of a pipeline run, or None."""
        group, version, plural = WORKFLOWS
        read = self._custom.get_namespaced_custom_object
        found = self._ask(read, group, version, self.namespace, plural, name, absent=True)
        return None if found is None else dict(found)

    def find(self, name: str) -> Plain | None:
        """The job, or None."""
        found = self._ask(self._custom.get_namespaced_custom_object, *self._kind, name, absent=True)
        return None if found is None else dict(found)

    def create(self, job: Plain) -> bool:
        """Creates a job; returns False if the name exists. Raises `InputError` if the job is refused."""
        from kubernetes.client import ApiException

        try:
            self._ask(self._custom.create_namespaced_custom_object, *self._kind, job)
        except ApiException as error:
            if error.status == 409:
                return False
            if error.status == 404:
                raise InputError(
                    "this cluster has no TrainJobs: install Kubeflow Trainer 2.3 and the component "
                    "manifests/components/trainer, or give the placement `nodes: 1`"
                ) from None
            raise InputError(f"TrainJob {job['metadata']['name']} was refused: {message(error)}") from None
        return True

    def delete(self, job: Plain) -> None:
        """Starts deleting exactly this job, which disappears once its pods have ended."""
        from kubernetes.client import ApiException

        own = {"preconditions": {"uid": job["metadata"]["uid"]}, "propagationPolicy": "Foreground"}
        name = job["metadata"]["name"]
        try:
            self._ask(self._custom.delete_namespaced_custom_object, *self._kind, name, absent=True, body=own)
        except ApiException as error:
            if error.status != 409:  # another job of this name by now
                raise

    def pods(self, job: str) -> list[Plain]:
        """The current pods of a job."""
        selector = f"{POD_LABEL}={job}"
        found = self._read(self._core.list_namespaced_pod, self.namespace, label_selector=selector)
        return list(json.loads(found or "{}").get("items", []))

    def lines(self, pod: str, since_seconds: int | None) -> list[str]:
        """The log lines of a node's pod, each prefixed with its time; empty if it has no log (yet)."""
        from kubernetes.client import ApiException

        since = {} if since_seconds is None else {"since_seconds": since_seconds}
        try:
            found = self._read(
                self._core.read_namespaced_pod_log, pod, self.namespace, container=NODE, timestamps=True, **since
            )
        except ApiException as error:
            if error.status == 400:  # its container has not started
                return []
            raise
        # Only a newline ends a line and is followed by a time: a progress bar writes carriage returns inside it.
        return [line for line in (found or "").split("\n") if line]

    def warnings(self, job: str) -> list[str]:
        """Kubernetes' warnings about the job, its parts and pods, with remedies: no quota, no node, no image."""
        found = self._read(self._core.list_namespaced_event, self.namespace, field_selector="type=Warning")
        reasons = []
        for event in json.loads(found or "{}").get("items", []):
            about = event.get("involvedObject", {})
            name = about.get("name", "")
            if name == job or name.startswith(f"{job}-"):
                words = with_remedy(f"{event.get('reason')}: {event.get('message')}")
                reasons.append(f"{about.get('kind')} {name}: {words}")
        return list(dict.fromkeys(reasons))

    def _read(self, call: Callable[..., Any], *given: Any, **more: Any) -> str | None:
        """The raw text of an answer; None if the object does not exist."""

        def whole(*given: Any, **more: Any) -> str:
            return str(call(*given, _preload_content=False, **more).data.decode("utf-8", errors="replace"))

        answer = self._ask(whole, *given, absent=True, **more)
        return None if answer is None else str(answer)

    def _ask(self, call: Callable[..., Any], *given: Any, absent: bool = False, **more: Any) -> Any:
        """The answer to a call, however long it takes unless `brief`. With `absent`, None for a missing object.

        Raises `InputError` if the step's account lacks the permission, and `ApiException` for a wrong call.
        """
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        pause = 0.5
        timeout = REQUEST_TIMEOUT if self._tries_left is None else BRIEF_TIMEOUT
        while True:
            try:
                return call(*given, _request_timeout=timeout, **more)
            except ApiException as error:
                if error.status == 404 and absent:
                    return None
                if error.status in (401, 403):
                    raise InputError(
                        f"Kubernetes refuses this step access: {message(error)}. Give the run the account "
                        "`stillhouse-steps`, and its namespace the roles of manifests/components/trainer"
                    ) from None
                if error.status is not None and 0 < error.status < 500 and error.status not in ASK_AGAIN:
                    raise
                what = f"it answered {error.status}" if error.status else str(error.reason)
            except (HTTPError, OSError) as error:
                what = f"{type(error).__name__}"
            if self._tries_left is not None:
                self._tries_left -= 1
                if not self._tries_left:
                    raise NoAnswer(what)
            if pause == 0.5:
                self.log(f"Kubernetes does not answer ({what}); the nodes continue, asking again")
            self.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
