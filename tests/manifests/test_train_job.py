"""The job that a step starts has the fields of its kind, fits the runtimes, and has correct pods."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
from rendered_overlays import Resource, pod_specs, rendered
from test_overlays import KUBERNETES, check_custom
from test_security import violations

from stillhouse.kubeflow.pipelines.placement_table import find_table
from stillhouse.kubeflow.placement import Accelerator, Secret
from stillhouse.kubeflow.trainjob.manifest import RUNTIME_CPU, RUNTIME_GPU, train_job
from stillhouse.kubeflow.trainjob.own_pod import OwnPod
from stillhouse.kubeflow.trainjob.settings import NodeSettings

IMAGE = "registry.example/stillhouse@sha256:" + "0" * 64
POD = OwnPod(
    run="run-1",
    owner={"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "train-xyz", "uid": "w-1"},
    image=IMAGE,
    environment={"AWS_ACCESS_KEY_ID": {"valueFrom": {"secretKeyRef": {"name": "mine", "key": "access-key-id"}}}},
    volumes={
        "/volume": {"persistentVolumeClaim": {"claimName": "team-work"}},
        "/keys": {"secret": {"secretName": "mine", "optional": True}},
        "/kfp-launcher": {"emptyDir": {}},
    },
    pull_secrets=[{"name": "registry"}],
)
VALUES = {"STILLHOUSE_WORK": "/volume", "TMPDIR": "/scratch", "HOME": "/scratch", "STILLHOUSE_METRICS_PORT": "9464"}


def settings(table: str, nodes: int = 2, **changes: Any) -> NodeSettings:
    placement = find_table(table).on_nodes(nodes).of("pretrain")
    return NodeSettings(task="pretraining", placement=replace(placement, **changes))


def job(of: NodeSettings) -> Resource:
    return train_job("stillhouse-pretrain-0123456789ab", "pretrain", ["python3", "-m", "x"], of, POD, VALUES)


SECRETS = find_table("gpu").of("ingest").secrets
KEYS_OF, ABSENT = (Secret(role=path, name="mine", path=path) for path in ("/keys", "/absent"))
MIG = Accelerator(type="nvidia.com/mig-3g.40gb", count=4)
CASES: dict[str, NodeSettings] = {
    "cpu": settings("cpu"),
    "gpu": settings("gpu"),
    "many": settings("gpu", nodes=16),
    "chosen nodes": settings("gpu", node_selector={"gpu": "h100"}, priority="stillhouse-refresh"),
    "no shared memory": settings("cpu", shared_memory=""),
    "keys": settings("gpu", secrets=(*SECRETS, KEYS_OF, ABSENT), accelerator=MIG),
}


@pytest.mark.parametrize("case", CASES)
def test_a_job_has_the_fields_of_its_kind(case: str) -> None:
    check_custom(job(CASES[case]))


def runtime(name: str) -> Resource:
    [found] = [one for one in rendered("gpu") if one["kind"] == "TrainingRuntime" and one["metadata"]["name"] == name]
    return found


def pod_template(of: Resource) -> Resource:
    """Return the pod template that Trainer builds for a job: its runtime's, merged with the job's patch and trainer."""
    [own] = runtime(of["spec"]["runtimeRef"]["name"])["spec"]["template"]["spec"]["replicatedJobs"]
    template = copy.deepcopy(own["template"]["spec"]["template"])
    [patch] = of["spec"]["runtimePatches"]
    [patched] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert patched["name"] == own["name"] == "node"
    merged = merge(template, patched["template"]["spec"]["template"])
    [container] = merged["spec"]["containers"]
    trainer = of["spec"]["trainer"]
    container |= {"image": trainer["image"], "command": trainer["command"], "resources": trainer["resourcesPerNode"]}
    container["env"] = merge({"env": container["env"]}, {"env": trainer["env"]})["env"]
    return merged


KEYS = {"volumes": "name", "containers": "name", "env": "name", "volumeMounts": "mountPath", "imagePullSecrets": "name"}
"""The key by which Kubernetes merges the entries of a list. Other lists are replaced."""


def merge(one: Resource, other: Resource) -> Resource:
    """Apply a strategic merge patch, as far as these tests need it."""
    made = dict(one)
    for name, value in other.items():
        if isinstance(value, dict) and isinstance(made.get(name), dict):
            made[name] = merge(made[name], value)
        elif name in KEYS and name in made:
            entries = {entry[KEYS[name]]: entry for entry in made[name]}
            for entry in value:
                entries[entry[KEYS[name]]] = merge(entries.get(entry[KEYS[name]], {}), entry)
            made[name] = list(entries.values())
        else:
            made[name] = value
    return made


@pytest.mark.parametrize("case", CASES)
def test_its_pods_are_valid_and_keep_to_the_restricted_level(case: str) -> None:
    template = pod_template(job(CASES[case]))
    spec = template["spec"] | {"restartPolicy": "Never"}
    assert violations(spec) == []
    metadata = template["metadata"] | {"name": "p"}
    for version in KUBERNETES:
        kubernetes_validate.validate(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, version, strict=True
        )
    [container] = spec["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}, "no volume without its place, none missing"
    assert spec["automountServiceAccountToken"] is False and container["securityContext"]["readOnlyRootFilesystem"]


def test_nodes_have_what_the_run_chose() -> None:
    template = pod_template(job(CASES["keys"]))
    spec, [container] = template["spec"], template["spec"]["containers"]
    places = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes[places["/volume"]]["persistentVolumeClaim"]["claimName"] == "team-work"
    assert volumes[places["/keys"]]["secret"]["secretName"] == "mine" and "/kfp-launcher" not in places
    assert volumes[places["/dev/shm"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    assert container["image"] == IMAGE and spec["imagePullSecrets"] == [{"name": "registry"}]
    for kind in ("requests", "limits"):
        assert container["resources"][kind]["nvidia.com/mig-3g.40gb"] == "4"
        assert "nvidia.com/gpu" not in container["resources"][kind]
    variables = {entry["name"]: entry for entry in container["env"]}
    assert variables["AWS_ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"]["name"] == "mine"
    assert variables["STILLHOUSE_HAS_GPU"]["value"] == "1"
    assert "STILLHOUSE_NODES" not in variables, "a node starts no nodes"
    assert template["metadata"]["annotations"]["prometheus.io/port"] == "9464"
    assert template["metadata"]["labels"]["stillhouse.io/task"] == "pretrain"
    assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "stillhouse-training", "as the policy goes by"


def test_the_runtimes_are_those_of_the_manifests() -> None:
    of = [job(CASES[table])["spec"]["runtimeRef"]["name"] for table in ("cpu", "gpu")]
    assert of == [RUNTIME_CPU, RUNTIME_GPU]
    there = {name for name in pod_specs(rendered("gpu")) if name.startswith("TrainingRuntime/")}
    assert there == {f"TrainingRuntime/{name}/node" for name in (RUNTIME_CPU, RUNTIME_GPU)}
