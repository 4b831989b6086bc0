"""Starts runs on a cluster through Kubeflow's API, and watches them.

In a pod the API is found by its service and the pod's projected token is sent along; outside, by a kubeconfig, or by
the address of a port-forward.
"""

from __future__ import annotations

import datetime
import os
import re
import ssl
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.errors import InputError
from stillhouse.kubernetes.pods.pipeline_parameters import RUN_CACHE_PARAMETER
from stillhouse.pipelines.access import ENDPOINT, refused, remedy_of, token_file
from stillhouse.pipelines.ir import Compiled
from stillhouse.pipelines.place import IMAGE
from stillhouse.pipelines.placement import NAME, RESOURCE, refuse_image, refuse_run_cache
from stillhouse.pipelines.pods import PodWatch
from stillhouse.pipelines.termination import CANCELING, LONGEST_SECONDS, remedy

DONE = ("SUCCEEDED", "SKIPPED", "FAILED", "CANCELED", "CACHED")
SHOWN = ("RUNNING", *DONE)
TRY = re.compile(r"\(\d+\)$")

EARLIEST = datetime.datetime.min.replace(tzinfo=datetime.UTC)

Log = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where Kubeflow Pipelines answers. Without a host: the pod's own cluster, or that of the kubeconfig.

    `kubeflow` is the namespace that it is installed in, `namespace` that of the runs where it serves several users.
    `flag` is what the command calls the host, for the remedy.
    """

    host: str = ""
    kubeflow: str = "kubeflow"
    namespace: str = ""
    context: str = ""
    ca_file: str = ""
    flag: str = "--host"

    def connect(self) -> Any:
        """A client of kfp that was answered. Raises `InputError` with the remedy where nobody answers."""
        import kfp
        from kfp.client import ServiceAccountTokenVolumeCredentials

        host = self.host or os.environ.get(ENDPOINT, "")
        token = token_file()
        # kfp sends a pod's token only where no address is given.
        credentials = ServiceAccountTokenVolumeCredentials(str(token)) if token else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # says nothing but that it is a client of version 2
            try:
                if host:
                    self._probe(host, token)  # kfp would try for half a minute
                client = kfp.Client(
                    host=host or None,
                    namespace=self.kubeflow,
                    credentials=credentials if host else None,
                    kube_context=self.context or None,
                    ssl_ca_cert=self.ca_file or None,
                )
            except Exception as error:
                raise InputError(_no_answer(host, error, self.flag)) from None
        if self.namespace:
            client._context_setting["namespace"] = self.namespace  # kfp's own setter writes to the home folder
        return client

    def _probe(self, host: str, token: Path | None) -> None:
        """Asks once whether the API is there. Raises what `urllib` raises."""
        url = host if "://" in host else f"https://{host}"
        request = urllib.request.Request(f"{url.rstrip('/')}/apis/v2beta1/healthz")
        if token:
            request.add_header("authorization", f"Bearer {token.read_text(encoding='utf-8').strip()}")
        trusted = ssl.create_default_context(cafile=self.ca_file or None)
        with urllib.request.urlopen(request, timeout=10, context=trusted):
            pass


def _no_answer(host: str, error: Exception, flag: str) -> str:
    status = getattr(error, "status", None) or getattr(error, "code", None)
    where = host or "the cluster of this pod or kubeconfig"
    if status in (401, 403):
        return f"Kubeflow Pipelines at {where} refuses access ({status}){remedy_of(status)}"
    reason = f"answered {status}" if status else f"does not answer ({_reason(error)})"
    return (
        f"Kubeflow Pipelines at {where} {reason}. Outside the cluster: `kubectl port-forward -n kubeflow "
        f"svc/ml-pipeline 8888:8888` and {flag} http://localhost:8888, or a kubeconfig that may reach the service"
    )


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]


def check_pod_parameters(values: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Refuses what a pod's specification would refuse: the image, the accelerator, names of claims and secrets."""
    for name, value in values.items():
        if name == IMAGE or (name in known and name.endswith("_image")):
            refuse_image(value)
        elif name == RUN_CACHE_PARAMETER:
            refuse_run_cache(value)
        elif name == "accelerator_type" and not RESOURCE.fullmatch(value):
            raise InputError(f"accelerator_type is {value!r}; write it as nvidia.com/gpu")
        elif name == "accelerator_count" and not re.fullmatch("[1-9][0-9]*", value):
            raise InputError(f"accelerator_count is {value!r}; give a whole number from 1")
        elif name in known and name.endswith(("_claim", "_secret")) and not NAME.fullmatch(value):
            raise InputError(f"{name} is {value!r}; give the name of an object in Kubernetes, as {known[name]}")


def submit(
    client: Any,
    compiled: Compiled,
    values: Mapping[str, Any],
    run_name: str,
    experiment: str,
    service_account: str = "",
) -> str:
    """Starts a run and returns its id. Raises `InputError` for what the API refuses, with its reason."""
    from kfp_server_api import ApiException

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{compiled.version}.yaml"
        path.write_text(compiled.as_ir(), encoding="utf-8")
        try:
            run = client.run_pipeline(
                experiment_id=client.create_experiment(experiment).experiment_id,
                job_name=run_name,
                pipeline_package_path=str(path),
                params=dict(values),
                service_account=service_account or None,
            )
        except ApiException as error:
            raise refused("the run", error) from None
    return str(run.run_id)


def namespace_of(client: Any, experiment: str, cluster: Cluster) -> str:
    """Where a run's pods are: in the namespace that was given, that of its experiment, or Kubeflow's own."""
    if cluster.namespace:
        return cluster.namespace
    from kfp_server_api import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return str(client.get_experiment(experiment_name=experiment).namespace or cluster.kubeflow)
    except (ApiException, HTTPError, ValueError):  # the run is more than where to look for its pods
        return cluster.kubeflow


def watch(
    client: Any,
    run_id: str,
    log: Log,
    every_seconds: float = 5.0,
    pods: PodWatch | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Logs every change of the run's tasks until it has ended, and why `pods` wait; whether it succeeded.

    An API server that does not answer for a while is asked again: the run goes on without it. The end of a run that
    was terminated is waited for no longer than ten minutes. Raises `InputError` for a server that is silent for long.
    """
    seen: dict[str, str] = {}
    silent = 0
    terminated: float | None = None
    while True:
        try:
            run = client.get_run(run_id)
            silent = 0
        except Exception as error:
            silent += 1
            if silent == 1:
                what = f"no answer ({_reason(error)})"
                log(f"{what}; the run goes on, asking again{remedy_of(getattr(error, 'status', None))}")
            if silent >= 60:
                raise InputError(f"Kubeflow Pipelines has not answered for long; look at run {run_id} later") from None
            time.sleep(every_seconds)
            continue
        _tell(run, seen, log)
        if pods:
            pods.look(now=run.state in DONE)
        if run.state in DONE:
            log(f"run {run_id}: {run.state.lower()}")
            return bool(run.state == "SUCCEEDED")
        if run.state == CANCELING:
            if terminated is None:
                terminated = clock()
                log(f"run {run_id} was terminated; waiting for its end")
            elif clock() - terminated > LONGEST_SECONDS:
                log(f"run {run_id} has not ended in {LONGEST_SECONDS // 60} minutes. {remedy(run_id)}")
                return False
        time.sleep(every_seconds)


def _tell(run: Any, seen: dict[str, str], log: Log) -> None:
    """Logs the tasks whose state is another than before, in the order in which they began."""
    details = (run.run_details and run.run_details.task_details) or []
    for task in sorted(details, key=lambda task: task.create_time or EARLIEST):
        if task.state not in SHOWN or seen.get(task.task_id) == task.state or _is_kubeflow_s(task.display_name):
            continue
        seen[task.task_id] = task.state
        took = ""
        if task.state in DONE and task.start_time and task.end_time:
            took = f" in {(task.end_time - task.start_time).total_seconds():.0f} s"
        reason = f": {task.error.message}" if task.error and task.error.message else ""
        log(f"  {task.display_name}: {task.state.lower()}{took}{reason}")


def _is_kubeflow_s(name: str) -> bool:
    """Whether a task is the backend's own, or a try that Argo numbers, as `plan(0)`, and none of the pipeline."""
    return bool(TRY.search(name)) or name.endswith(("-driver", "root")) or name in ("executor", "")
