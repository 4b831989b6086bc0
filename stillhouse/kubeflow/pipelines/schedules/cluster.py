"""What schedules need from a cluster: recurring runs, runs, and the versions of pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import redact
from stillhouse.kubeflow.pipelines.access import refused
from stillhouse.kubeflow.pipelines.schedules.file import Parameter, Schedule
from stillhouse.kubeflow.pipelines.stored import all_pages, by_name, find_pipeline, newest_versions
from stillhouse.kubeflow.pipelines.submit import Cluster

FAILED = "FAILED"
FINISHED = frozenset({"SUCCEEDED", FAILED, "SKIPPED", "CANCELED", "CANCELING"})
"""The states of runs that no longer work. Argo may leave one that was terminated in CANCELING for ever."""
ORPHAN = "ORPHAN"
"""Deletes a recurring run but keeps its runs. Servers before 2.16 do not know this policy, and end the runs."""


def in_flight(run: Any) -> bool:
    """Whether a run of kfp's client may still work."""
    return run.state not in FINISHED


class Kubeflow:
    """A Kubeflow Pipelines API server: with the pod's projected token in a cluster, or by its endpoint outside.

    Raises `InputError` if it refuses a request or does not answer.
    """

    def __init__(self, experiment: str, endpoint: str = "", namespace: str = "", client: Any = None) -> None:
        self._client = client or Cluster(host=endpoint, namespace=namespace, flag="--endpoint").connect()
        self._namespace = namespace
        self._experiment_name = experiment

    @cached_property
    def experiment(self) -> str:
        """The id of the file's experiment, which is made if the cluster has none of its name."""
        with _reported(f"the experiment {self._experiment_name!r}"):
            made = self._client.create_experiment(self._experiment_name, namespace=self._namespace or None)
        return str(made.experiment_id)

    def known_experiment(self) -> str:
        """The id of the file's experiment, or "" if the cluster has none of its name."""
        given = {"namespace": self._namespace or None, "filter": by_name(self._experiment_name)}
        with _reported(f"the experiment {self._experiment_name!r}"):
            found = self._client.list_experiments(**given)
        return next((str(entry.experiment_id) for entry in found.experiments or []), "")

    def recurring_runs(self) -> list[Any]:
        """The recurring runs, as kfp's client describes them."""
        return self._pages(self._client.list_recurring_runs, "recurring_runs")

    def runs(self) -> list[Any]:
        return self._pages(self._client.list_runs, "runs")

    def create(self, schedule: Schedule, name: str, description: str) -> None:
        pipeline, version = self._find(schedule.pipeline, schedule.version)
        with _reported("the recurring run"):
            self._client.create_recurring_run(
                experiment_id=self.experiment,
                job_name=name,
                description=description,
                cron_expression=schedule.cron,
                max_concurrency=1,
                no_catchup=True,
                params=dict(schedule.parameters),
                pipeline_id=pipeline,
                # kfp requires an id; with an empty one the server uses the newest version at each start.
                version_id=version.pipeline_version_id if schedule.version else "",
                enabled=schedule.enabled,
                service_account=schedule.service_account or None,
            )

    def set_enabled(self, recurring: str, enabled: bool) -> None:
        change = self._client.enable_recurring_run if enabled else self._client.disable_recurring_run
        with _reported(f"to {'enable' if enabled else 'disable'} the recurring run"):
            change(recurring)

    def delete(self, recurring: str) -> None:
        """Deletes a recurring run; runs that it started continue."""
        with _reported("to delete the recurring run"):
            # The client's own method in 2.17 cannot set a policy.
            delete = self._client._recurring_run_api.recurring_run_service_delete_recurring_run
            delete(recurring, propagation_policy=ORPHAN)

    def version_of(self, pipeline: str, version: str) -> Any:
        """The version that a run would use now; raises `InputError` for a missing pipeline or version."""
        return self._find(pipeline, version)[1]

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
        """A pipeline's id, and its version with that name, or its newest."""
        with _reported(f"a look at the pipeline {pipeline!r}"):
            pipeline_id = find_pipeline(self._client, pipeline, self._namespace)
            if not pipeline_id:
                raise InputError(
                    f"the cluster has no pipeline {pipeline!r}; `stillhouse pipeline upload {pipeline}` uploads one of "
                    "ours; in Kubernetes-native mode, apply the manifests"
                )
            versions = newest_versions(self._client, pipeline_id)
        for found in versions:
            if version in ("", found.display_name):
                return pipeline_id, found
        names = ", ".join(entry.display_name for entry in versions) or "none"
        raise InputError(f"the pipeline {pipeline!r} has no version {version!r}; it has: {names}")

    def _pages(self, ask: Any, field: str) -> list[Any]:
        with _reported("a look at its runs"):
            return all_pages(partial(ask, namespace=self._namespace or None), field)


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Turns a refusal or missing answer of the API server into an `InputError` with the reason."""
    from kfp_server_api import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        raise refused(what, error) from None
    except (HTTPError, ConnectionError, TimeoutError) as error:
        raise InputError(
            f"Kubeflow Pipelines does not answer ({type(error).__name__}); repeat the command when it responds"
        ) from None
    except InputError:
        raise
    except ValueError as error:  # from kfp, for instance about two experiments with one name
        raise InputError(
            f"kfp refuses {what}: {redact(str(error))[:400]} Fix the file, or the cause named above"
        ) from None
