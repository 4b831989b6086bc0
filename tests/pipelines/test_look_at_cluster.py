"""What a run's first task reports about a cluster, with the real client and a local API server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    quota,
    serve,
    write_kubeconfig,
)

from stillhouse.kubernetes.cluster import api
from stillhouse.kubernetes.cluster.argo_retries import CONFIG_MAP, policy_of
from stillhouse.kubernetes.cluster.wanted import Wanted
from stillhouse.pipelines.admission import wanted_of
from stillhouse.pipelines.control import check_cluster
from stillhouse.pipelines.placement import Accelerator, Claim, Placement, Secret

GPU_POD = Placement(
    cpu="8",
    memory="64Gi",
    accelerator=Accelerator(type="nvidia.com/gpu", count=1),
    preflight=True,
    queue="stillhouse",
    claims=(Claim(parameter="work_claim", name="stillhouse-work", path="/volume"),),
    secrets=(Secret(parameter="data_secret", name="stillhouse-data", keys={"access-key-id": "AWS_ACCESS_KEY_ID"}),),
)
ARGO = "/api/v1/namespaces/kubeflow/configmaps"
WANTED = wanted_of({"pretrain": GPU_POD}, GPU_POD)


def argo_settings(policy: str) -> dict[str, Any]:
    """Return Argo's settings as Kubeflow Pipelines 2.17 installs them, with a retry policy."""
    strategy = {"limit": "2", "retryPolicy": policy} if policy else {"limit": "2"}
    defaults = {"spec": {"templateDefaults": {"retryStrategy": strategy}}}
    return {
        "metadata": {"name": "workflow-controller-configmap"},
        "data": {"executor": "imagePullPolicy: IfNotPresent\n", "workflowDefaults": yaml.safe_dump(defaults)},
    }


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
            f"{HERE}/resourcequotas": [quota("stillhouse", {"pods": "50", "requests.nvidia.com/gpu": "8"})],
            f"{KUEUE}/localqueues": [local_queue("stillhouse")],
            ARGO: [argo_settings("OnError")],
        }
        yield known


def look(monkeypatch: pytest.MonkeyPatch, wanted: Wanted = WANTED, **chosen: str) -> int:
    """Run the task and return its exit code. The run's parameters are on the command line, as for kfp's executor."""
    values = {f"pipelinechannel--{name}": value for name, value in chosen.items()}
    given = json.dumps({"inputs": {"parameterValues": values}})
    monkeypatch.setattr(sys, "argv", ["executor", "--executor_input", given])
    try:
        check_cluster.python_func(wanted=wanted.to_json())
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


CHOSEN = {
    "accelerator_type": ("amd.com/gpu", "none of the cluster's 2 nodes has amd.com/gpu; they have nvidia.com/gpu"),
    "accelerator_count": ("16", "no node has 16 nvidia.com/gpu; the largest has 8"),
    "work_claim": ("mine", "volume claim mine does not exist"),
}


@pytest.mark.parametrize("parameter", CHOSEN)
def test_the_check_looks_for_the_values_chosen_for_the_run(
    parameter: str, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run from the user interface that names missing resources ends with an error and exit code 2."""
    value, words = CHOSEN[parameter]
    assert look(monkeypatch, **{parameter: value}) == 2
    logged = capsys.readouterr().err
    assert logged.startswith("stillhouse: this cluster cannot run the pipeline with these settings:\n  - ")
    assert words in logged and "Traceback" not in logged


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


def test_a_secret_that_must_be_there_ends_the_run(
    kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the secret is missing, Kubernetes sets no variable in the pod, so the pod needs no right to read secrets."""
    monkeypatch.delenv("LOOK_DATA_SECRET_0")
    assert look(monkeypatch) == 0
    assert "secret stillhouse-data does not exist" in capsys.readouterr().out
    must = Secret(parameter="data_secret", name="stillhouse-data", keys={"access-key-id": "A"}, optional=False)
    asked = {"pretrain": Placement(secrets=(must,))}
    assert look(monkeypatch, wanted_of(asked, Placement()), data_secret="ours") == 2
    assert "secret ours does not exist" in capsys.readouterr().err
    assert "secrets" not in {resource for _, _, resource in kubernetes.calls}


@pytest.mark.parametrize("resource", ["nodes", "persistentvolumeclaims", "resourcequotas", "localqueues", "configmaps"])
def test_a_forbidden_check_is_reported_and_skipped(
    resource: str, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubernetes.refused = {resource}
    assert look(monkeypatch) == 0
    [notice, end] = capsys.readouterr().out.splitlines()
    assert notice.startswith("[cluster] not checked: ") and f"403: {resource} is forbidden" in notice
    assert end.startswith("[cluster] found nothing")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("OnFailure", ["each with its own retries", "is not replaced"]),
        ("", ["retryPolicy is OnFailure", "is not replaced"]),
        ("Always", ["each with its own retries"]),
        ("OnTransientError", ["is not replaced"]),
    ],
)
def test_a_different_argo_retry_policy_is_reported_with_the_remedy(
    policy: str,
    words: list[str],
    kubernetes: Kubernetes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kubernetes.objects[ARGO] = [argo_settings(policy)]
    assert look(monkeypatch) == 0
    [notice, _] = capsys.readouterr().out.splitlines()
    assert all(word in notice for word in [*words, "set `retryPolicy: OnError`"])


def test_an_argo_in_the_runs_own_namespace_is_read_too(
    kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubernetes.objects[ARGO] = []
    kubernetes.objects[f"{HERE}/configmaps"] = [argo_settings("Always")]
    assert look(monkeypatch) == 0
    assert "retryPolicy is Always" in capsys.readouterr().out
    damaged = {"metadata": {"name": "workflow-controller-configmap"}, "data": {"workflowDefaults": "spec: [a"}}
    kubernetes.objects[f"{HERE}/configmaps"] = [damaged]
    assert look(monkeypatch) == 0
    assert "not checked: which pods Argo retries: workflow-controller-configmap" in capsys.readouterr().out


@pytest.mark.parametrize(
    "data",
    [
        {"config": "workflowDefaults: {spec: {templateDefaults: {retryStrategy: {retryPolicy: Always}}}}"},
        {"workflowDefaults": "spec: {templateDefaults: {retryStrategy: {retryPolicy: Always}}}"},
    ],
)
def test_argos_settings_are_read_from_one_key_or_from_many(data: dict[str, str]) -> None:
    assert policy_of({"data": data}) == "Always"
    assert policy_of({}) == policy_of({"data": {"workflowDefaults": "spec: {}"}}) == "OnFailure"


def test_a_cluster_without_kueue_is_reported_and_accepted(
    kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del kubernetes.objects[f"{KUEUE}/localqueues"]
    assert look(monkeypatch) == 0
    assert "this cluster has no Kueue" in capsys.readouterr().out


def test_an_older_kueue_api_is_supported(kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    older = KUEUE.replace("v1beta2", "v1beta1")
    kubernetes.objects[f"{older}/localqueues"] = kubernetes.objects.pop(f"{KUEUE}/localqueues")
    monkeypatch.setattr(sys, "argv", [])
    assert look(monkeypatch) == 0
    kubernetes.objects[f"{older}/localqueues"] = []
    assert look(monkeypatch) == 2


@pytest.mark.parametrize("how", ["no server", "no kubeconfig", "no namespace"])
def test_an_unreachable_api_is_reported_once_and_the_run_continues(
    how: str,
    kubernetes: Kubernetes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if how == "no server":
        write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    elif how == "no kubeconfig":
        (tmp_path / "config").unlink()
    else:
        monkeypatch.delenv("STILLHOUSE_POD_NAMESPACE")
    assert look(monkeypatch) == 0
    [notice, _] = capsys.readouterr().out.splitlines()
    assert notice.startswith("[cluster] not checked")
    assert not kubernetes.calls


def test_roles_allow_exactly_the_requests_made(kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch) == 0
    manifests = Path(__file__).resolve().parents[2] / "manifests"
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
    looked = {"nodes", "persistentvolumeclaims", "resourcequotas", "localqueues"}
    settings = ("get", "", "configmaps")
    assert {right for right in allowed if right[2] in looked} == asked - {settings}
    for text in texts:
        every = [rule for role in yaml.safe_load_all(text.read_text()) for rule in role.get("rules", [])]
        [rule] = [rule for rule in every if CONFIG_MAP in rule.get("resourceNames", [])]
        assert (rule["verbs"], rule["apiGroups"], rule["resources"]) == (["get"], [""], ["configmaps"])
