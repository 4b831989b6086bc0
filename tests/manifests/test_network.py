"""Who talks to whom: the connections that runs, Kubeflow and monitoring need are allowed, and others are not.

Kubeflow's connections come from its repositories (kubeflow/pipelines: manifests/kustomize with the profile
controller's sync.py, third-party/seaweedfs, backend/src/v2/config; kubeflow/manifests: common/networkpolicies).
"""

from __future__ import annotations

import pytest
from network_policies import Peer, lets_through
from rendered_overlays import Resource, rendered

OWN = ("gpu", "single-node")
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}


def of_run(**labels: str) -> dict[str, str]:
    """The labels that Kubeflow Pipelines and Argo give every pod of a run."""
    return {"pipelines.kubeflow.org/v2_component": "true", "workflows.argoproj.io/workflow": "train-xyz"} | labels


RUNS = {
    "driver": of_run(),
    "step": of_run(**{"stillhouse.io/task": "encode"}),
    "watcher": {"app.kubernetes.io/name": "stillhouse-watcher"},
    "node": {"app.kubernetes.io/name": "stillhouse-training", "stillhouse.io/task": "pretrain"},
    "gateway": {"app.kubernetes.io/name": "stillhouse-pushgateway"},
    "artifact proxy": {"app": "ml-pipeline-ui-artifact"},
    "visualisation": {"app": "ml-pipeline-visualizationserver"},
    "anything else": {},
}
"""Pods of the namespace of runs, by their labels."""
OTHERS = {
    "pipelines API": Peer("kubeflow", {"app": "ml-pipeline"}),
    "metadata": Peer("kubeflow", {"component": "metadata-grpc-server"}),
    "object store": Peer("kubeflow", {"app": "seaweedfs"}),
    "minio": Peer("kubeflow", {"app": "minio"}),
    "Kubeflow's UI": Peer("kubeflow", {"app": "ml-pipeline-ui"}),
    "Prometheus": Peer("monitoring", {"app.kubernetes.io/name": "prometheus"}),
    "names": Peer("kube-system", {"k8s-app": "kube-dns"}),
    "a stranger": Peer("elsewhere", {"app": "x"}),
    "outside": Peer(),
}


def kubeflow_lets_in(key: str, value: str, port: int | None = None) -> Resource:
    """Return a policy of Kubeflow: profile namespaces and Kubeflow's own namespace may connect to one of its parts."""
    rule: Resource = {"from": [{"namespaceSelector": {"matchLabels": PROFILE}}, {"podSelector": {}}]}
    if port:
        rule["ports"] = [{"port": port}]
    spec = {"podSelector": {"matchLabels": {key: value}}, "policyTypes": ["Ingress"], "ingress": [rule]}
    return {"metadata": {"name": value, "namespace": "kubeflow"}, "spec": spec}


KUBEFLOW = [
    kubeflow_lets_in("app", "ml-pipeline"),
    kubeflow_lets_in("component", "metadata-grpc-server"),
    kubeflow_lets_in("app", "minio"),
    kubeflow_lets_in("app", "seaweedfs", 8333),
]

NEEDED = [
    ("driver", "pipelines API", 8887, "cache and tasks, by gRPC"),
    ("driver", "metadata", 8080, "executions and artifacts"),
    ("driver", "outside", 443, "Kubernetes' API"),
    ("driver", "outside", 6443, "Kubernetes' API"),
    ("step", "pipelines API", 8887, "the launcher: the cache"),
    ("step", "pipelines API", 8888, "the API by HTTP"),
    ("step", "metadata", 8080, "the launcher: executions and artifacts"),
    ("step", "object store", 8333, "the launcher and Argo: artifacts and logs"),
    ("step", "minio", 9000, "the same of older installations"),
    ("step", "outside", 443, "models, an object store outside"),
    ("step", "outside", 22, "git"),
    ("step", "names", 53, "names"),
    ("watcher", "pipelines API", 8888, "looks at runs and starts one"),
    ("watcher", "outside", 443, "git, DVC's remote"),
    ("watcher", "outside", 22, "git"),
    ("Kubeflow's UI", "artifact proxy", 3000, "shows an artifact"),
    ("artifact proxy", "object store", 8333, "reads it"),
    ("artifact proxy", "minio", 9000, "the same of older installations"),
    ("artifact proxy", "pipelines API", 8888, "asks whether the person may"),
    ("artifact proxy", "outside", 443, "Kubernetes' API, an object store outside"),
    ("pipelines API", "visualisation", 8888, "draws one"),
    ("visualisation", "object store", 8333, "of what lies there"),
]
NEEDED_GPU = [
    ("step", "gateway", 9091, "results"),
    ("watcher", "gateway", 9091, "how fresh the release is"),
    ("Prometheus", "gateway", 9091, "both"),
    ("Prometheus", "step", 9464, "live figures"),
    ("Prometheus", "node", 9464, "live figures"),
    ("node", "gateway", 9091, "results"),
    ("node", "node", 29500, "rendezvous"),
    ("node", "node", 41234, "NCCL"),
    ("node", "names", 53, "names"),
]
REFUSED = [
    ("a stranger", "step", 9464),
    ("a stranger", "artifact proxy", 3000),
    ("a stranger", "gateway", 9091),
    ("Prometheus", "step", 22),
    ("Kubeflow's UI", "step", 3000),
    ("Kubeflow's UI", "artifact proxy", 22),
    ("step", "outside", 80),
    ("step", "step", 29500),
    ("step", "node", 29500),
    ("step", "artifact proxy", 3000),
    ("node", "outside", 443),
    ("node", "pipelines API", 8888),
    ("node", "object store", 8333),
    ("artifact proxy", "outside", 22),
    ("visualisation", "outside", 443),
    ("gateway", "outside", 443),
    ("anything else", "outside", 443),
    ("anything else", "pipelines API", 8888),
]


def comes_about(
    overlay: str,
    source: str,
    target: str,
    port: int,
    resources: tuple[Resource, ...] = (),
    others: dict[str, Peer] = OTHERS,
) -> bool:
    resources = resources or rendered(overlay)
    [namespace] = [one["metadata"] for one in resources if one["kind"] == "Namespace"]
    policies = [one for one in resources if one["kind"] == "NetworkPolicy"] + KUBEFLOW
    peers = others | {name: Peer(namespace["name"], labels, namespace["labels"]) for name, labels in RUNS.items()}
    return lets_through(policies, peers[source], peers[target], port, "UDP" if port == 53 else "TCP")


@pytest.mark.parametrize("overlay", OWN)
def test_needed_connections_are_allowed(overlay: str) -> None:
    flows = NEEDED + (NEEDED_GPU if overlay == "gpu" else [])
    assert [flow for flow in flows if not comes_about(overlay, *flow[:3])] == []


@pytest.mark.parametrize("overlay", OWN)
def test_other_connections_are_refused(overlay: str) -> None:
    assert [flow for flow in REFUSED if comes_about(overlay, *flow)] == []
