"""Installations over and beside each other: one overlay after another, in two namespaces, and what people may do."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from rendered_overlays import EVERY_OVERLAY, Resource, rendered, with_component
from test_security import OWN_NAMESPACE

CLUSTER_WIDE = {"ClusterQueue", "ClusterRole", "ClusterRoleBinding", "Namespace", "ResourceFlavor"}
CLUSTER_WIDE |= {"WorkloadPriorityClass"}


def identity(resource: Resource) -> tuple[str, str, str]:
    """Return what tells a resource from others on a cluster."""
    metadata = resource["metadata"]
    namespace = "" if resource["kind"] in CLUSTER_WIDE else metadata["namespace"]
    return resource["kind"], namespace, metadata["name"]


def without_namespace(resource: Resource) -> Resource:
    """Return a resource as a server keeps it: kustomize writes a namespace even where a kind has none."""
    if resource["kind"] not in CLUSTER_WIDE:
        return resource
    metadata = {name: value for name, value in resource["metadata"].items() if name != "namespace"}
    return resource | {"metadata": metadata}


def immutable(resource: Resource) -> Resource:
    """Return the fields that a server lets nobody change."""
    spec = resource.get("spec", {})
    if resource["kind"] == "PersistentVolumeClaim":
        return {name: value for name, value in spec.items() if name != "resources"}
    return {"roleRef": resource.get("roleRef"), "selector": spec.get("selector")}


@pytest.mark.parametrize(("first", "second"), permutations(OWN_NAMESPACE, 2))
def test_an_overlay_can_be_applied_over_another(first: str, second: str) -> None:
    there = {identity(one): one for one in rendered(first)}
    for resource in rendered(second):
        if identity(resource) in there:
            assert immutable(resource) == immutable(there[identity(resource)]), identity(resource)


@pytest.mark.parametrize("overlay", EVERY_OVERLAY)
def test_a_second_namespace_takes_nothing_from_the_first(overlay: str, tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(with_component(tmp_path / name, overlay, namespace=name))
    first = {identity(one): without_namespace(one) for one in made[0]}
    for resource in made[1]:
        assert without_namespace(resource) == first.get(identity(resource), resource), identity(resource)
