"""Kueue's queue is the one in the placements, and has the resources and priority classes that they request."""

from __future__ import annotations

from rendered_overlays import Resource, rendered

from stillhouse.kubeflow.pipelines.placement_table import FOLDER, find_table
from stillhouse.kubeflow.placement import Placement
from stillhouse.pipeline.recipes import shipped_files


def placements() -> list[Placement]:
    """Return every kind of pod in every shipped table."""
    return [kind for table in shipped_files(FOLDER) for kind in find_table(table).kinds.values()]


def only(resources: tuple[Resource, ...], kind: str) -> Resource:
    [found] = [one for one in resources if one["kind"] == kind]
    return found


def check_groups(resources: tuple[Resource, ...]) -> list[str]:
    """Return the resources that the queue covers, after checking Kueue's rules for its resource groups."""
    covered: list[str] = []
    used: list[str] = []
    for group in only(resources, "ClusterQueue")["spec"]["resourceGroups"]:
        covered += group["coveredResources"]
        used += [flavor["name"] for flavor in group["flavors"]]
        for flavor in group["flavors"]:
            assert [resource["name"] for resource in flavor["resources"]] == group["coveredResources"], "in this order"
    assert len(set(covered)) == len(covered), "no resource in two groups"
    assert len(set(used)) == len(used), "no flavor in two groups"
    assert {one["metadata"]["name"] for one in resources if one["kind"] == "ResourceFlavor"} == set(used)
    return covered


def test_the_queue_of_placements_exists() -> None:
    resources = rendered("gpu")
    queue, cluster = only(resources, "LocalQueue"), only(resources, "ClusterQueue")
    assert queue["spec"]["clusterQueue"] == cluster["metadata"]["name"]
    chosen = cluster["spec"]["namespaceSelector"]["matchLabels"]
    assert chosen and chosen.items() <= only(resources, "Namespace")["metadata"]["labels"].items()
    assert {placement.queue for placement in placements()} - {""} == {queue["metadata"]["name"]}


def test_the_queue_hands_out_what_placements_ask_for() -> None:
    """Kueue never admits a pod that requests a resource that its queue does not cover."""
    covered = check_groups(rendered("gpu"))
    asked = {placement.accelerator.type for placement in placements() if placement.queue and placement.accelerator}
    assert asked and {"cpu", "memory"} | asked <= set(covered)
    assert not [name for name in covered if "/mig-" in name]
