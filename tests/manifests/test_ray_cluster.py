"""The component for Ray: its fields, what its pods may do, and who can reach them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from network_policies import Peer, lets_through
from rendered_overlays import Resource, pod_specs, with_component
from test_overlays import KUBERNETES, check_custom
from test_security import violations


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Resource, ...]:
    return with_component(tmp_path_factory.mktemp("overlay"), "gpu", "ray", namespace="stillhouse")


@pytest.fixture(scope="module")
def cluster(resources: tuple[Resource, ...]) -> Any:
    [found] = [one for one in resources if one["kind"] == "RayCluster"]
    return found


def test_the_cluster_has_the_fields_of_its_kind(cluster: Any) -> None:
    check_custom(cluster)
    assert cluster["metadata"]["namespace"] == "stillhouse"
    wrong = cluster | {"spec": cluster["spec"] | {"workers": 1}}
    with pytest.raises(jsonschema.ValidationError):
        check_custom(wrong)


@pytest.mark.parametrize("version", KUBERNETES)
def test_its_pods_are_restricted_and_have_the_fields_of_kubernetes(
    resources: tuple[Resource, ...], version: str
) -> None:
    specs = {name: spec for name, spec in pod_specs(resources).items() if name.startswith("RayCluster/")}
    assert len(specs) == 2
    claims = {one["metadata"]["name"] for one in resources if one["kind"] == "PersistentVolumeClaim"}
    for name, spec in specs.items():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
        kubernetes_validate.validate(pod, version, strict=True)
        assert violations(spec) == [], name
        assert spec["automountServiceAccountToken"] is False
        [container] = spec["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] and "memory" in container["resources"]["limits"]
        named = {volume["name"] for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= named
        assert {"name": "STILLHOUSE_WORK", "value": "/volume"} in container["env"]
        assert {
            v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if "persistentVolumeClaim" in v
        } <= claims


def test_the_version_is_that_of_the_extra(cluster: Any) -> None:
    """Ray refuses clients of another version."""
    pins = (Path(__file__).resolve().parents[2] / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"ray=={cluster['spec']['rayVersion']}" in pins


RAY = {"app.kubernetes.io/name": "stillhouse-ray"}
STEP = {"pipelines.kubeflow.org/v2_component": "true"}
WATCHER = {"app.kubernetes.io/name": "stillhouse-watcher"}


@pytest.mark.parametrize(
    ("source", "target", "port", "may"),
    [
        (RAY, RAY, 6379, True),
        (RAY, RAY, 34567, True),
        (STEP, RAY, 10001, True),
        (STEP, RAY, 6379, False),
        (WATCHER, RAY, 10001, False),
        (RAY, WATCHER, 10001, False),
    ],
)
def test_only_steps_reach_the_ray_cluster(
    resources: tuple[Resource, ...], source: dict[str, str], target: dict[str, str], port: int, may: bool
) -> None:
    policies = [one for one in resources if one["kind"] == "NetworkPolicy"]
    assert lets_through(policies, Peer("stillhouse", source), Peer("stillhouse", target), port) is may
