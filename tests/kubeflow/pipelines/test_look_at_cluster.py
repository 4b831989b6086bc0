"""What a run's first task reports about a cluster, with the real client and a local API server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes_server import (
    HERE,
    KUEUE,
    NAMESPACE,
    Kubernetes,
    claim,
    local_queue,
    node,
    serve,
    write_kubeconfig,
)

from stillhouse.kubeflow.cluster import api
from stillhouse.kubeflow.cluster.wanted import Wanted
from stillhouse.kubeflow.pipelines.admission import wanted_of
from stillhouse.kubeflow.pipelines.control import check_cluster
from stillhouse.kubeflow.pipelines.placement import Accelerator, Claim, Placement, Secret

GPU_POD = Placement(
    cpu="8",
    memory="64Gi",
    accelerator=Accelerator(type="nvidia.com/gpu", count=1),
    preflight=True,
    queue="stillhouse",
    claims=(Claim(parameter="work_claim", name="stillhouse-work", path="/volume"),),
    secrets=(Secret(parameter="data_secret", name="stillhouse-data", keys={"access-key-id": "AWS_ACCESS_KEY_ID"}),),
)
WANTED = wanted_of({"pretrain": GPU_POD}, GPU_POD)


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Kubernetes]:
    """Start a cluster that has everything, and point this process to it."""
    with serve() as known:
        config = write_kubeconfig(tmp_path / "config", known.host)
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(config))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setenv("STILLHOUSE_POD_NAMESPACE", NAMESPACE)
        monkeypatch.setenv("LOOK_DATA_SECRET_0", "given")
        known.objects = {
            "/api/v1/nodes": [node("small"), node("large", gpu="8")],
            f"{HERE}/persistentvolumeclaims": [claim("stillhouse-work")],
            f"{KUEUE}/localqueues": [local_queue("stillhouse")],
        }
        yield known


def look(monkeypatch: pytest.MonkeyPatch, wanted: Wanted = WANTED, **chosen: str) -> int:
    """Run the task and return its exit code. The run's parameters are on the command line, as for kfp's executor."""
    values = {f"pipelinechannel--{name}": value for name, value in chosen.items()}
    given = json.dumps({"inputs": {"parameterValues": values}})
    monkeypatch.setattr(sys, "argv", ["executor", "--executor_input", given])
    try:
        check_cluster().python_func(wanted=wanted.to_json())
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code
    return 0


def test_a_complete_cluster_is_accepted(
    kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "PAGE", 1)  # the list of nodes has several pages
    assert look(monkeypatch) == 0
    assert capsys.readouterr().out == "[cluster] found nothing missing\n"


MISSING = {
    "/api/v1/nodes": "none of the cluster's 0 nodes",
    f"{HERE}/persistentvolumeclaims": "volume claim stillhouse-work does not exist",
    f"{KUEUE}/localqueues": "Kueue has no LocalQueue stillhouse",
}


@pytest.mark.parametrize("path", MISSING)
def test_a_missing_resource_ends_the_run(
    path: str, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubernetes.objects[path] = []
    assert look(monkeypatch) == 2
    assert MISSING[path] in capsys.readouterr().err


@pytest.mark.parametrize("resource", ["nodes", "persistentvolumeclaims", "localqueues"])
def test_a_forbidden_check_is_reported_and_skipped(
    resource: str, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubernetes.refused = {resource}
    assert look(monkeypatch) == 0
    [notice, end] = capsys.readouterr().out.splitlines()
    assert notice.startswith("[cluster] not checked: ") and f"403: {resource} is forbidden" in notice
    assert end.startswith("[cluster] found nothing")


@pytest.mark.parametrize("how", ["no server", "no kubeconfig"])
def test_an_unreachable_api_is_reported_once_and_the_run_continues(
    how: str,
    kubernetes: Kubernetes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if how == "no server":
        write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    else:
        (tmp_path / "config").unlink()
    assert look(monkeypatch) == 0
    [notice, _] = capsys.readouterr().out.splitlines()
    assert notice.startswith("[cluster] not checked")
    assert not kubernetes.calls


def test_roles_allow_exactly_the_requests_made(kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch) == 0
    manifests = Path(__file__).resolve().parents[3] / "manifests"
    texts = [manifests / "base" / "roles.yaml", manifests / "cluster" / "role.yaml"]
    roles = [role for path in texts for role in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    rules = [
        rule
        for role in roles
        if role["kind"] in ("Role", "ClusterRole")
        and role["metadata"]["name"] in ("stillhouse-steps", "stillhouse-check-cluster")
        for rule in role["rules"]
    ]
    allowed = {
        (verb, group, resource)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    asked = set(kubernetes.calls)
    assert asked <= allowed
    looked = {"nodes", "persistentvolumeclaims", "localqueues"}
    assert {right for right in allowed if right[2] in looked} == asked
