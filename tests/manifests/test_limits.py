"""A LimitRange gives its default limit to a container without one, and Kubernetes refuses a pod that requests more."""

from __future__ import annotations

import pytest
from kubernetes.utils.quantity import parse_quantity
from rendered_overlays import EVERY_OVERLAY, Resource, pod_specs, rendered
from test_overlays import compiled

Limits = dict[str, str]
HARSH = {"cpu": "1m", "memory": "1Mi", "ephemeral-storage": "1Mi"}
"""The defaults of a LimitRange that no request is below."""


def refused(resources: Resource, defaults: Limits) -> list[str]:
    """Return the requests that are above the container's limit, which may be the namespace's default."""
    limits = defaults | resources.get("limits", {})
    return [
        name
        for name, request in resources.get("requests", {}).items()
        if name in limits and parse_quantity(request) > parse_quantity(limits[name])
    ]


def containers(spec: Resource) -> list[Resource]:
    return [*spec["containers"], *spec.get("initContainers", [])]


@pytest.mark.parametrize("overlay", EVERY_OVERLAY)
def test_no_default_limit_is_below_a_request(overlay: str) -> None:
    specs = pod_specs(rendered(overlay))
    assert specs
    for name, spec in specs.items():
        for container in containers(spec):
            assert refused(container["resources"], HARSH) == [], f"{name}: {container['name']}"


@pytest.mark.parametrize("table", ["cpu", "gpu"])
def test_the_same_for_the_tasks_of_the_pipelines(table: str) -> None:
    for one in compiled(table):
        if one["kind"] != "PipelineVersion":
            continue
        for name, executor in one["spec"]["pipelineSpec"]["deploymentSpec"]["executors"].items():
            asked = executor["container"]["resources"]
            own = {
                "requests": {"cpu": asked["resourceCpuRequest"], "memory": asked["resourceMemoryRequest"]},
                "limits": {"cpu": asked["resourceCpuLimit"], "memory": asked["resourceMemoryLimit"]},
            }
            assert refused(own, HARSH) == [], f"{one['metadata']['name']}: {name}"
