"""What schedules ask of a cluster, behind a protocol so small that a test can be one; and Kubeflow as that cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pipelines.schedules.file import Parameter, Schedule
from stillhouse.errors import InputError
from stillhouse.versions.address import redact

FINISHED = frozenset({"SUCCEEDED", "FAILED", "SKIPPED", "CANCELED"})
PAGE = 100


@dataclass(frozen=True)
class Recurring:
    """A recurring run of the cluster. `description` tells whose it is."""

    id: str
    name: str
    description: str
    enabled: bool


@dataclass(frozen=True)
class Run:
    """A run of the cluster; `recurring` is the id of the recurring run that started it, or ""."""

    id: str
    name: str
    state: str
    recurring: str = ""

    @property
    def in_flight(self) -> bool:
        return self.state not in FINISHED


class Runs(Protocol):
    """What the watcher needs of a cluster."""

    def runs(self) -> list[Run]: ...

    def version_of(self, pipeline: str, version: str) -> str:
        """The version that a run would be of now; raises `InputError` for a pipeline or version that is not there."""
        ...

    def start(self, pipeline: str, version: str, name: str, parameters: Mapping[str, Parameter]) -> str: ...


class Cluster(Runs, Protocol):
    """And what `stillhouse schedule apply` needs."""

    def recurring_runs(self) -> list[Recurring]: ...

    def create(self, schedule: Schedule, name: str, description: str) -> str: ...

    def set_enabled(self, recurring: str, enabled: bool) -> None: ...

    def delete(self, recurring: str) -> None: ...


class Kubeflow:
    """A Kubeflow Pipelines API server: in a cluster by the pod's projected token, outside by its endpoint.

    What it refuses, and that it does not answer, comes as `InputError`.
    """

    def __init__(self, experiment: str, endpoint: str = "", namespace: str = "", client: Any = None) -> None:
        self._client = client or _connect(endpoint, namespace)
        self._namespace = namespace or None
        self._experiment_name = experiment
        self._experiment = ""

    @property
    def experiment(self) -> str:
        if not self._experiment:
            with _told(f"the experiment {self._experiment_name!r}"):
                made = self._client.create_experiment(self._experiment_name, namespace=self._namespace)
            self._experiment = str(made.experiment_id)
        return self._experiment

    def recurring_runs(self) -> list[Recurring]:
        found = self._pages(self._client.list_recurring_runs, "recurring_runs")
        return [
            Recurring(entry.recurring_run_id, entry.display_name, entry.description or "", entry.status == "ENABLED")
            for entry in found
        ]

    def runs(self) -> list[Run]:
        found = self._pages(self._client.list_runs, "runs")
        return [
            Run(entry.run_id, entry.display_name, entry.state or "PENDING", entry.recurring_run_id or "")
            for entry in found
        ]

    def create(self, schedule: Schedule, name: str, description: str) -> str:
        pipeline, versions = self._find(schedule.pipeline, schedule.version)
        with _told("the recurring run"):
            made = self._client.create_recurring_run(
                experiment_id=self.experiment,
                job_name=name,
                description=description,
                cron_expression=schedule.cron,
                max_concurrency=schedule.max_concurrency,
                no_catchup=not schedule.catchup,
                params=dict(schedule.parameters),
                pipeline_id=pipeline,
                version_id=versions.get(schedule.version),
                enabled=schedule.enabled,
            )
        return str(made.recurring_run_id)

    def set_enabled(self, recurring: str, enabled: bool) -> None:
        change = self._client.enable_recurring_run if enabled else self._client.disable_recurring_run
        with _told(f"to {'enable' if enabled else 'disable'} the recurring run"):
            change(recurring)

    def delete(self, recurring: str) -> None:
        with _told("to delete the recurring run"):
            self._client.delete_recurring_run(recurring)

    def version_of(self, pipeline: str, version: str) -> str:
        newest_first = self._find(pipeline, version)[1]
        return version or next(iter(newest_first), "")

    def start(self, pipeline: str, version: str, name: str, parameters: Mapping[str, Parameter]) -> str:
        pipeline_id, versions = self._find(pipeline, version)
        with _told("the run"):
            made = self._client.run_pipeline(
                experiment_id=self.experiment,
                job_name=name,
                params=dict(parameters),
                pipeline_id=pipeline_id,
                version_id=versions.get(version),  # without one it is of the newest, as a recurring run at each start
            )
        return str(made.run_id)

    def _find(self, pipeline: str, version: str) -> tuple[str, dict[str, str]]:
        """A pipeline's id, and the ids of its versions by their names, the newest first."""
        with _told(f"a look at the pipeline {pipeline!r}"):
            pipeline_id = self._client.get_pipeline_id(pipeline)
        if not pipeline_id:
            raise InputError(
                f"the cluster has no pipeline {pipeline!r}; `stillhouse pipeline upload {pipeline}` brings one of "
                "ours, in Kubernetes-native mode the manifests do"
            )
        with _told(f"a look at the pipeline {pipeline!r}"):
            versions = self._client.list_pipeline_versions(pipeline_id, page_size=PAGE, sort_by="created_at desc")
        names = {entry.display_name: entry.pipeline_version_id for entry in versions.pipeline_versions or []}
        if version and version not in names:
            raise InputError(
                f"the pipeline {pipeline!r} has no version {version!r}; it has: {', '.join(names) or 'none'}"
            )
        return pipeline_id, names

    def _pages(self, ask: Any, field: str) -> list[Any]:
        found: list[Any] = []
        token = ""
        while True:
            with _told("a look at its runs"):
                answer = ask(page_token=token, page_size=PAGE, namespace=self._namespace)
            found += getattr(answer, field) or []
            token = answer.next_page_token or ""
            if not token:
                return found


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turns what the API server refuses, and that it does not answer, into an `InputError` with the reason."""
    from kfp_server_api import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        raise InputError(f"Kubeflow Pipelines refuses {what} ({error.status}): {_reason(error)}") from None
    except (HTTPError, ConnectionError, TimeoutError) as error:
        raise InputError(
            f"Kubeflow Pipelines does not answer ({type(error).__name__}); repeat the command when it does"
        ) from None


def _reason(error: Any) -> str:
    """What the server says for a person, of all that it answers."""
    try:
        content = json.loads(error.body)
        text = str(content.get("message") or content["error"])
    except (ValueError, TypeError, KeyError, AttributeError):
        text = str(error.body or error.reason or "it gives no reason")
    return redact(" ".join(text.split()))[:400]


def _connect(endpoint: str, namespace: str) -> Any:
    try:
        import kfp
    except ImportError:
        raise InputError("schedules need kfp: pip install 'stillhouse[platform]'") from None
    try:
        client = kfp.Client(host=endpoint or None, namespace=namespace or "kubeflow")
        client.get_kfp_healthz()
    except Exception as error:
        raise InputError(
            f"cannot reach the Kubeflow API server {endpoint or 'of this cluster'} ({type(error).__name__}); outside "
            "it: `kubectl port-forward -n kubeflow svc/ml-pipeline 8888` and --endpoint http://localhost:8888"
        ) from None
    return client
