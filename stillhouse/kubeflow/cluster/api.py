"""Asks the API of a Kubernetes cluster, with the account of a pod or the kubeconfig elsewhere.

An unanswered request does not fail the run: `Unseen` says in words what could not be read.
"""

from __future__ import annotations

import json
from typing import Any

from stillhouse.core.errors import InputError

REQUEST_TIMEOUT = (4, 20)
"""Seconds to connect, and to wait for each part of the answer."""
PAGE = 250
"""Objects per answer: the description of one node takes tens of kilobytes."""
KUEUE_VERSIONS = ("v1beta2", "v1beta1")

Plain = dict[str, Any]


class Unseen(Exception):
    """Something could not be read; the text says why.

    `reached` is false if nothing answers at all; `status` is the HTTP status of an answer, else 0, and `said` its
    message.
    """

    def __init__(self, why: str, reached: bool = True, status: int = 0, said: str = "") -> None:
        super().__init__(why)
        self.reached, self.status, self.said = reached, status, said

    @property
    def refused(self) -> bool:
        """Whether the account lacks the permission, so that asking again is useless."""
        return self.status in (401, 403)


class NoSuchKind(Unseen):
    """The cluster does not know this kind of object: its software is not installed."""


def connect(what_for: str, context: str = "") -> Any:
    """A client for this pod's cluster; outside a pod, or with a `context`, for the kubeconfig's cluster.

    Raises `InputError` without either; `what_for` begins its sentence.
    """
    try:
        from kubernetes import client, config
    except ImportError:
        raise InputError(
            f"{what_for} the Kubernetes client: pip install 'stillhouse[kubeflow]', or use an image that has it"
        ) from None
    settings = client.Configuration()
    try:
        try:
            if context:
                raise config.ConfigException
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            config.load_kube_config(context=context or None, client_configuration=settings)
    except config.ConfigException as error:
        raise InputError(f"{what_for} a Kubernetes cluster, but none is configured here: {error}") from None
    settings.retries = False  # callers retry themselves, and log it
    return client.ApiClient(settings)


class Api:
    """One namespace, over a `kubernetes.client.ApiClient`. Every call may raise `Unseen`."""

    timeout = REQUEST_TIMEOUT

    def __init__(self, client: Any, namespace: str) -> None:
        self.namespace, self._client = namespace, client
        self._here = f"/api/v1/namespaces/{namespace}"
        self._argo = f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/workflows"

    def workloads(self) -> list[Plain]:
        """The workloads that Kueue holds back or has admitted."""
        for version in KUEUE_VERSIONS:
            try:
                return self._list(f"/apis/kueue.x-k8s.io/{version}/namespaces/{self.namespace}/workloads")
            except NoSuchKind as error:
                last = error
        raise last

    def pods(self, label: str) -> list[Plain]:
        return self._list(f"{self._here}/pods", labelSelector=label)

    def warnings(self) -> list[Plain]:
        return self._list(f"{self._here}/events", fieldSelector="type=Warning")

    def workflows(self, label: str) -> list[Plain]:
        """Argo's records of runs."""
        return self._list(self._argo, labelSelector=label)

    def workflow(self, name: str) -> Plain | None:
        return self._get(f"{self._argo}/{name}")

    def last_lines(self, pod: str, container: str, count: int) -> list[str]:
        """The end of a pod's log; empty for a container that never started, or a pod that is gone."""
        return self.log_of(pod, container, tailLines=count)

    def log_of(self, pod: str, container: str, **query: Any) -> list[str]:
        try:
            return self._read(f"{self._here}/pods/{pod}/log", container=container, **query).split("\n")
        except Unseen as error:
            if error.status in (400, 404):  # 400: "container main is waiting to start"
                return []
            raise

    def _get(self, path: str) -> Plain | None:
        """The object at this path, or None."""
        try:
            return dict(json.loads(self._read(path)))
        except Unseen as error:
            if error.status == 404:
                return None
            raise

    def _list(self, path: str, **query: str) -> list[Plain]:
        found: list[Plain] = []
        pages: dict[str, Any] = {**query, "limit": str(PAGE)}
        while True:
            try:
                answer = json.loads(self._read(path, **pages))
            except Unseen as error:
                if error.status == 404:
                    raise NoSuchKind(str(error), status=404) from None
                raise
            found += answer.get("items") or []
            token = answer.get("metadata", {}).get("continue")
            if not token:
                return found
            pages["continue"] = token

    def _read(self, path: str, method: str = "GET", body: Plain | None = None, **query: Any) -> str:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            answer = self._client.call_api(
                path,
                method,
                query_params=list(query.items()),
                header_params={"Accept": "application/json, */*", "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=self.timeout,
            )
            return str(answer.data.decode("utf-8", errors="replace"))
        except ApiException as error:
            said = _message(error)
            if not error.status:  # a connection error, for instance an untrusted certificate
                raise Unseen(str(error.reason), reached=False) from None
            raise Unseen(f"Kubernetes answers {error.status}: {said}", status=error.status, said=said) from None
        except (HTTPError, OSError) as error:
            raise Unseen(f"Kubernetes does not answer ({type(error).__name__})", reached=False) from None


def _message(error: Any) -> str:
    """The message of the API server."""
    try:
        message = json.loads(error.body).get("message")
    except (TypeError, ValueError, AttributeError):
        message = None
    return str(message or error.reason or error.status)
