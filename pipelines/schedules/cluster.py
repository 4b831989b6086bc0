"""What schedules ask of a cluster, behind a protocol so small that a test can be one; and Kubeflow as that cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pipelines.schedules.file import Parameter, Schedule
from stillhouse.errors import InputError

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


class Cluster(Protocol):
    def recurring_runs(self) -> list[Recurring]: ...

    def runs(self) -> list[Run]: ...

    def create(self, schedule: Schedule, name: str, description: str) -> str: ...

    def set_enabled(self, recurring: str, enabled: bool) -> None: ...

    def delete(self, recurring: str) -> None: ...

    def start(self, pipeline: str, version: str, name: str, parameters: Mapping[str, Parameter]) -> str: ...


class Kubeflow:
    """A Kubeflow Pipelines API server: in a cluster by the pod's projected token, outside by its endpoint."""

    def __init__(self, experiment: str, endpoint: str = "", namespace: str = "", client: Any = None) -> None:
        self._client = client or _connect(endpoint, namespace)
        self._namespace = namespace or None
        self._experiment_name = experiment
        self._experiment = ""

    @property
    def experiment(self) -> str:
        if not self._experiment:
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
        pipeline, version = self._find(schedule.pipeline, schedule.version)
        made = self._client.create_recurring_run(
            experiment_id=self.experiment,
            job_name=name,
            description=description,
            cron_expression=schedule.cron,
            max_concurrency=schedule.max_concurrency,
            no_catchup=not schedule.catchup,
            params=dict(schedule.parameters),
            pipeline_id=pipeline,
            version_id=version,
            enabled=schedule.enabled,
        )
        return str(made.recurring_run_id)

    def set_enabled(self, recurring: str, enabled: bool) -> None:
        change = self._client.enable_recurring_run if enabled else self._client.disable_recurring_run
        change(recurring)

    def delete(self, recurring: str) -> None:
        self._client.delete_recurring_run(recurring)

    def start(self, pipeline: str, version: str, name: str, parameters: Mapping[str, Parameter]) -> str:
        pipeline_id, version_id = self._find(pipeline, version)
        made = self._client.run_pipeline(
            experiment_id=self.experiment,
            job_name=name,
            params=dict(parameters),
            pipeline_id=pipeline_id,
            version_id=version_id,
        )
        return str(made.run_id)

    def _find(self, pipeline: str, version: str) -> tuple[str, str | None]:
        pipeline_id = self._client.get_pipeline_id(pipeline)
        if not pipeline_id:
            raise InputError(
                f"the cluster has no pipeline {pipeline!r}; `stillhouse pipeline upload {pipeline}` brings one of "
                "ours, in Kubernetes-native mode the manifests do"
            )
        versions = self._client.list_pipeline_versions(pipeline_id, page_size=PAGE, sort_by="created_at desc")
        names = {entry.display_name: entry.pipeline_version_id for entry in versions.pipeline_versions or []}
        if version and version not in names:
            raise InputError(
                f"the pipeline {pipeline!r} has no version {version!r}; it has: {', '.join(names) or 'none'}"
            )
        # A recurring run without a version takes the newest at each start; a run is of one version.
        return pipeline_id, names[version] if version else None

    def _pages(self, ask: Any, field: str) -> list[Any]:
        found: list[Any] = []
        token = ""
        while True:
            answer = ask(page_token=token, page_size=PAGE, namespace=self._namespace)
            found += getattr(answer, field) or []
            token = answer.next_page_token or ""
            if not token:
                return found


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
