"""Asks the API of a Kubernetes cluster, with the account of a pod or the kubeconfig elsewhere."""

from __future__ import annotations

import json
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import redact

REQUEST_TIMEOUT = (4, 20)
"""Seconds to connect, and to wait for each part of the answer."""

Plain = dict[str, Any]


class Unseen(Exception):
    """Something could not be read; the text says why.

    `status` is the HTTP status of an answer, 0 if nothing answers, and `said` is its message.
    """

    def __init__(self, why: str, status: int = 0, said: str = "") -> None:
        super().__init__(why)
        self.status, self.said = status, said


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

    def pods(self, label: str) -> list[Plain]:
        return self._list(f"{self._here}/pods", labelSelector=label)

    def warnings(self) -> list[Plain]:
        return self._list(f"{self._here}/events", fieldSelector="type=Warning")

    def log_of(self, pod: str, container: str, **query: Any) -> list[str]:
        """The lines of a pod's log; empty for a container that never started, or a pod that is gone."""
        try:
            return self._read(f"{self._here}/pods/{pod}/log", container=container, **query).split("\n")
        except Unseen as error:
            if error.status in (400, 404):  # 400: "container main is waiting to start"
                return []
            raise

    def _list(self, path: str, **query: Any) -> list[Plain]:
        return list(json.loads(self._read(path, **query)).get("items") or [])

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
            said = reason(error)
            if not error.status:  # a connection error, for instance an untrusted certificate
                raise Unseen(str(error.reason)) from None
            raise Unseen(f"Kubernetes answers {error.status}: {said}", error.status, said) from None
        except (HTTPError, OSError) as error:
            raise Unseen(f"Kubernetes does not answer ({type(error).__name__})") from None


def reason(error: Any) -> str:
    """The readable message in the server's answer, at most 400 characters: a proxy may answer with a whole page."""
    try:
        content = json.loads(error.body)
        text = str(content.get("message") or content.get("error_message") or content["error"])
    except (ValueError, TypeError, KeyError, AttributeError):
        text = str(error.body or error.reason or "without a reason")
    return redact(" ".join(text.split()))[:400].rstrip()
