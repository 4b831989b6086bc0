"""Starts runs on a cluster through Kubeflow's API, and watches them.

In a pod it finds the API by its service and sends the pod's projected token; outside, it uses a kubeconfig or the
address of a port-forward.
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.access import ENDPOINT, refused, remedy_of, token_file
from stillhouse.kubeflow.pipelines.ir import Compiled
from stillhouse.kubeflow.pipelines.place import IMAGE
from stillhouse.kubeflow.pipelines.pods import Log, PodWatch
from stillhouse.kubeflow.placement import RESOURCE, refuse_image

DONE = ("SUCCEEDED", "SKIPPED", "FAILED", "CANCELED", "CANCELING", "CACHED")
"""How a run or task ended. Argo may leave a run that was terminated in CANCELING for ever."""
SHOWN = ("RUNNING", *DONE)
TRY = re.compile(r"\(\d+\)$")

EARLIEST = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The address of Kubeflow Pipelines. Without a host, it is the pod's own cluster or the kubeconfig's.

    `kubeflow` is its own namespace; `namespace` is that of the runs if it serves several users. `flag` is the
    command's flag for the host, used in remedies.
    """

    host: str = ""
    kubeflow: str = "kubeflow"
    namespace: str = ""
    context: str = ""
    ca_file: str = ""
    flag: str = "--host"

    def connect(self) -> Any:
        """A connected kfp client. Raises `InputError` with the remedy if the API does not answer."""
        import kfp
        from kfp.client import ServiceAccountTokenVolumeCredentials

        host = self.host or os.environ.get(ENDPOINT, "")
        token = token_file()
        # kfp only sends a pod's token if no address is given.
        credentials = ServiceAccountTokenVolumeCredentials(str(token)) if token else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # it only says that this is a version 2 client
            try:
                if host:
                    self._probe(host, token)  # kfp would retry for half a minute
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
        """Checks once whether the API answers. Raises the errors of `urllib`."""
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
        f"svc/ml-pipeline 8888:8888` and {flag} http://localhost:8888, or a kubeconfig with access to the service"
    )


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]


def check_pod_parameters(values: Mapping[str, str]) -> None:
    """Refuses values that are invalid in a pod's specification: image and accelerator."""
    for name, value in values.items():
        if name == IMAGE:
            refuse_image(value)
        elif name == "accelerator_type" and not RESOURCE.fullmatch(value):
            raise InputError(f"accelerator_type is {value!r}; write it like nvidia.com/gpu")
        elif name == "accelerator_count" and not re.fullmatch("[1-9][0-9]*", value):
            raise InputError(f"accelerator_count is {value!r}; use a whole number of at least 1")


def submit(
    client: Any,
    compiled: Compiled,
    values: Mapping[str, Any],
    run_name: str,
    experiment: str,
    service_account: str = "",
) -> str:
    """Starts a run and returns its id. Raises `InputError` with the reason if the API refuses it."""
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


def watch(client: Any, run_id: str, log: Log, every_seconds: float = 5.0, pods: PodWatch | None = None) -> bool:
    """Logs every change of the run's tasks and `pods` until the run ends; returns whether it succeeded.

    If the API server does not answer for a while, it is polled again, because the run continues meanwhile. Raises
    `InputError` if the server stays silent for long.
    """
    seen: dict[str, str] = {}
    silent = 0
    while True:
        try:
            run = client.get_run(run_id)
            silent = 0
        except Exception as error:
            silent += 1
            if silent == 1:
                what = f"no answer ({_reason(error)})"
                log(f"{what}; the run continues, asking again{remedy_of(getattr(error, 'status', None))}")
            if silent >= 60:
                raise InputError(f"Kubeflow Pipelines no longer responds; check run {run_id} later") from None
            time.sleep(every_seconds)
            continue
        _tell(run, seen, log)
        if pods:
            pods.look()
        if run.state in DONE:
            log(f"run {run_id}: {run.state.lower()}")
            return bool(run.state == "SUCCEEDED")
        time.sleep(every_seconds)


def _tell(run: Any, seen: dict[str, str], log: Log) -> None:
    """Logs the tasks whose state has changed, in the order in which they started."""
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
    """Whether a task is not the pipeline's but the backend's own, or a try that Argo numbers, like `plan(0)`."""
    return bool(TRY.search(name)) or name.endswith(("-driver", "root")) or name in ("executor", "")
