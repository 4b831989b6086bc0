"""If a cluster is given, its Kubeflow Pipelines must accept the pipeline `train` unchanged.

`KUBECONFIG` names the cluster, or `KF_PIPELINES_ENDPOINT` the address of its API (for example, a port-forward). First
install the overlay `single-node` and let its watcher check once (docs/deploy.md, step 3), or for single-user Kubeflow
`shared-namespace`: the run mounts its claims. `STILLHOUSE_NAMESPACE` is the namespace of that overlay, and
`STILLHOUSE_SERVICE_ACCOUNT` the account of the run's pods, `stillhouse-steps`. With `STILLHOUSE_IMAGE`, an image by
digest that the cluster can pull, the run must succeed; without it, the run is terminated once the backend has compiled
it. The run is deleted at the end.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kfp_server_api import ApiException
from kubeflow_server import RUN, Api, serve
from programs import ROOT, call

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.access import ENDPOINT
from stillhouse.kubeflow.pipelines.submit import DONE, Cluster, watch

INSTALLED = {"--namespace": "STILLHOUSE_NAMESPACE", "--service-account": "STILLHOUSE_SERVICE_ACCOUNT"}
"""The flags of a submission, and the variables that hold their values."""
UNPULLABLE = "registry.invalid/stillhouse@sha256:" + "0" * 64
COMPILED_SECONDS = 120
RUN_SECONDS = 3 * 3600


def installed() -> list[str]:
    """Return the flags for the namespace and the pods' account, or skip the test if a variable is not set."""
    missing = [variable for variable in INSTALLED.values() if not os.environ.get(variable)]
    if missing:
        pytest.skip(
            f"no {' and no '.join(missing)} to submit a run with: install manifests/overlays/single-node, or "
            "shared-namespace for Kubeflow of one user, and set its namespace and stillhouse-steps"
        )
    return [word for flag, variable in INSTALLED.items() for word in (flag, os.environ[variable])]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Api]:
    with serve(monkeypatch, tmp_path) as known:
        yield known


@pytest.fixture(scope="module")
def client() -> Any:
    address = os.environ.get(ENDPOINT, "")
    if not address and not os.environ.get("KUBECONFIG"):
        pytest.skip(f"neither KUBECONFIG nor {ENDPOINT} is set: no run was submitted to a cluster")
    try:
        return Cluster(host=address, namespace=os.environ.get("STILLHOUSE_NAMESPACE", "")).connect()
    except InputError as error:
        if address:
            raise
        pytest.skip(f"the cluster of KUBECONFIG was given no Kubeflow Pipelines: {error}")


@pytest.mark.timeout(RUN_SECONDS)
def test_train_is_submitted(client: Any) -> None:
    image = os.environ.get("STILLHOUSE_IMAGE", "")
    name = f"stillhouse-test-{os.getpid()}"
    words = ["submit", "train", "--recipe", "micro", "--run-name", name, "--image", image or UNPULLABLE]
    logged = call(ROOT, "stillhouse", "pipeline", *words, *installed())
    [(run_id, version)] = re.findall(r"^run (\S+), version (\S+)$", logged, re.MULTILINE)
    try:
        assert version.startswith("train-")
        run = ended(client, run_id) if image else begun(client, run_id)
        assert run.display_name == name
        assert run.state == "SUCCEEDED" if image else run.state != "FAILED", reasons(run)
    finally:
        if terminated(client, run_id):
            ended(client, run_id)
        client.delete_run(run_id)


def test_a_run_that_has_just_ended_is_not_terminated(api: Api) -> None:
    api.states = [{"state": "RUNNING"}]
    known = Cluster(host=api.host).connect()
    assert terminated(known, RUN) and api.logged == [f"terminate {RUN}"]
    api.states = [{"state": "RUNNING"}, {"state": "SUCCEEDED"}]  # it ends between the two requests
    api.asked = 0
    assert not terminated(known, RUN)
    api.states = [{"state": "SUCCEEDED"}]
    assert not terminated(known, RUN) and len(api.logged) == 1


def begun(client: Any, run_id: str) -> Any:
    """Return the run once it has tasks: then the backend has compiled it, and Kubernetes has accepted its workflow."""
    until = time.monotonic() + COMPILED_SECONDS
    while time.monotonic() < until:
        run = client.get_run(run_id)
        if run.state in DONE or tasks(run):
            return run
        time.sleep(2)
    raise AssertionError(f"run {run_id} had no task within {COMPILED_SECONDS} s; it is {run.state}")


def terminated(client: Any, run_id: str) -> bool:
    """Terminate a run. Return False if it has just ended, because the server refuses to terminate it then."""
    if client.get_run(run_id).state in DONE:
        return False
    try:
        client.terminate_run(run_id)
    except ApiException as error:
        if error.status == 400 and "Row not found" in str(error.body):
            return False
        raise
    return True


def ended(client: Any, run_id: str) -> Any:
    watch(client, run_id, print)
    return client.get_run(run_id)


def tasks(run: Any) -> list[Any]:
    return list((run.run_details and run.run_details.task_details) or [])


def reasons(run: Any) -> list[str]:
    """Return the error messages of the run and its tasks."""
    errors = [run.error, *(task.error for task in tasks(run))]
    return [error.message for error in errors if error and error.message]
