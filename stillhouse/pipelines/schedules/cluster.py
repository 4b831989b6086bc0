"""What schedules ask of a cluster, behind a protocol so small that a test can be one; and Kubeflow as that cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from stillhouse.errors import InputError
from stillhouse.pipelines.access import refused
from stillhouse.pipelines.schedules.file import Parameter, Schedule
from stillhouse.pipelines.stored import default_image, find_pipeline, newest_versions
from stillhouse.pipelines.termination import CANCELING, LONGEST_SECONDS
from stillhouse.remote.address import redact

FAILED = "FAILED"
FINISHED = frozenset({"SUCCEEDED", FAILED, "SKIPPED", "CANCELED"})
PAGE = 100
SETTLE_SECONDS = 5.0
"""How long a recurring run that was disabled may still start a run: Kubeflow's controller hears of it by a watch."""
ORPHAN = "ORPHAN"
"""What is deleted leaves what it made. Servers before 2.16 know no such policy, and end the runs."""


@dataclass(frozen=True)
class Recurring:
    """A recurring run of the cluster. `description` says whose it is."""

    id: str
    name: str
    description: str
    enabled: bool


@dataclass(frozen=True)
class Run:
    """A run of the cluster; `recurring` is the id of the recurring run that started it, or "".

    `terminated` is when Kubeflow first saw a run that is being terminated as such, or None.
    """

    id: str
    name: str
    state: str
    recurring: str = ""
    terminated: datetime | None = None

    @property
    def in_flight(self) -> bool:
        return self.state not in FINISHED and not self.stuck

    @property
    def stuck(self) -> bool:
        """Whether it was terminated long ago and has not ended: nobody's work is in it, and it may never end."""
        if self.state != CANCELING or self.terminated is None:
            return False
        return datetime.now(UTC) - self.terminated > timedelta(seconds=LONGEST_SECONDS)


@dataclass(frozen=True)
class Version:
    """A version of a pipeline: its name, and the image of runs that name none (`None` = it takes none)."""

    name: str
    image: str | None = None


class Runs(Protocol):
    """What the watcher needs of a cluster."""

    def runs(self) -> list[Run]: ...

    def version_of(self, pipeline: str, version: str) -> Version:
        """The version that a run would be of now; raises `InputError` for a pipeline or version that is not there."""
        ...

    def start(
        self, pipeline: str, version: str, name: str, parameters: Mapping[str, Parameter], service_account: str
    ) -> str: ...


class Cluster(Runs, Protocol):
    """And what `stillhouse schedule apply` needs."""

    def recurring_runs(self) -> list[Recurring]: ...

    def create(self, schedule: Schedule, name: str, description: str) -> str: ...

    def set_enabled(self, recurring: str, enabled: bool) -> None: ...

    def settle(self) -> None:
        """Waits until what was disabled starts nothing more, and what it had begun to start is among the runs."""
        ...

    def delete(self, recurring: str) -> None: ...


class Kubeflow:
    """A Kubeflow Pipelines API server: in a cluster by the pod's projected token, outside by its endpoint.

    What it refuses, and that it does not answer, comes as `InputError`.
    """

    def __init__(self, experiment: str, endpoint: str = "", namespace: str = "", client: Any = None) -> None:
        self._client = client or _connect(endpoint, namespace)
        self._namespace = namespace
        self._experiment_name = experiment
        self._experiment = ""

    @property
    def experiment(self) -> str:
        if not self._experiment:
            with _reported(f"the experiment {self._experiment_name!r}"):
                made = self._client.create_experiment(self._experiment_name, namespace=self._namespace or None)
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
            Run(
                entry.run_id,
                entry.display_name,
                entry.state or "PENDING",
                entry.recurring_run_id or "",
                _terminated(entry),
            )
            for entry in found
        ]

    def create(self, schedule: Schedule, name: str, description: str) -> str:
        pipeline, version = self._find(schedule.pipeline, schedule.version)
        with _reported("the recurring run"):
            made = self._client.create_recurring_run(
                experiment_id=self.experiment,
                job_name=name,
                description=description,
                cron_expression=schedule.cron,
                max_concurrency=schedule.max_concurrency,
                no_catchup=not schedule.catchup,
                params=dict(schedule.parameters),
                pipeline_id=pipeline,
                # kfp wants an id; by an empty one the server takes, at each start, the version that is the newest then.
                version_id=version.pipeline_version_id if schedule.version else "",
                enabled=schedule.enabled,
                service_account=schedule.service_account or None,
            )
        return str(made.recurring_run_id)

    def set_enabled(self, recurring: str, enabled: bool) -> None:
        change = self._client.enable_recurring_run if enabled else self._client.disable_recurring_run
        with _reported(f"to {'enable' if enabled else 'disable'} the recurring run"):
            change(recurring)

    def settle(self) -> None:
        time.sleep(SETTLE_SECONDS)

    def delete(self, recurring: str) -> None:
        """Deletes a recurring run; a run of it that nobody has seen yet goes on."""
        with _reported("to delete the recurring run"):
            # The client's own method of 2.17 has no way to name a policy.
            delete = self._client._recurring_run_api.recurring_run_service_delete_recurring_run
            delete(recurring, propagation_policy=ORPHAN)

    def version_of(self, pipeline: str, version: str) -> Version:
        found = self._find(pipeline, version)[1]
        return Version(found.display_name, default_image(found))

    def start(
        self, pipeline: str, version: str, name: str, parameters: Mapping[str, Parameter], service_account: str
    ) -> str:
        pipeline_id, found = self._find(pipeline, version)
        with _reported("the run"):
            made = self._client.run_pipeline(
                experiment_id=self.experiment,
                job_name=name,
                params=dict(parameters),
                pipeline_id=pipeline_id,
                version_id=found.pipeline_version_id,
                service_account=service_account or None,
            )
        return str(made.run_id)

    def _find(self, pipeline: str, version: str) -> tuple[str, Any]:
        """A pipeline's id, and its version of that name, or its newest."""
        with _reported(f"a look at the pipeline {pipeline!r}"):
            pipeline_id = find_pipeline(self._client, pipeline, self._namespace)
        if not pipeline_id:
            raise InputError(
                f"the cluster has no pipeline {pipeline!r}; `stillhouse pipeline upload {pipeline}` brings one of "
                "ours, in Kubernetes-native mode the manifests do"
            )
        with _reported(f"a look at the pipeline {pipeline!r}"):
            versions = newest_versions(self._client, pipeline_id)
        for found in versions:
            if version in ("", found.display_name):
                return pipeline_id, found
        names = ", ".join(entry.display_name for entry in versions) or "none"
        raise InputError(f"the pipeline {pipeline!r} has no version {version!r}; it has: {names}")

    def _pages(self, ask: Any, field: str) -> list[Any]:
        found: list[Any] = []
        token = ""
        while True:
            with _reported("a look at its runs"):
                answer = ask(page_token=token, page_size=PAGE, namespace=self._namespace or None)
            found += getattr(answer, field) or []
            token = answer.next_page_token or ""
            if not token:
                return found


def _terminated(run: Any) -> datetime | None:
    """When a run was first seen to be terminated; None until Kubeflow has noted that in its history."""
    moments = [entry.update_time for entry in run.state_history or [] if entry.state == CANCELING]
    return min(moments, default=None)


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Turns what the API server refuses, and that it does not answer, into an `InputError` with the reason."""
    from kfp_server_api import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        raise refused(what, error) from None
    except (HTTPError, ConnectionError, TimeoutError) as error:
        raise InputError(
            f"Kubeflow Pipelines does not answer ({type(error).__name__}); repeat the command when it does"
        ) from None
    except InputError:
        raise
    except ValueError as error:  # kfp's own, of two experiments of one name for instance
        raise InputError(
            f"kfp refuses {what}: {redact(str(error))[:400]} Mend the file, or what the reason names"
        ) from None


def _connect(endpoint: str, namespace: str) -> Any:
    try:
        from stillhouse.pipelines import submit
    except ImportError:
        raise InputError("schedules need kfp: pip install 'stillhouse[platform]'") from None
    return submit.Cluster(host=endpoint, namespace=namespace, flag="--endpoint").connect()
