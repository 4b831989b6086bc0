"""The component for Ray: its fields, what its pods may do, and who can reach them."""

from __future__ import annotations

from typing import Any

import jsonschema
import kubernetes_validate
import pytest
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
