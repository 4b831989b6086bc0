"""Kueue's queue is the one in the placements, and has the resources and priority classes that they request."""

from __future__ import annotations

from pathlib import Path

import yaml
from rendered_overlays import MANIFESTS, Resource, rendered, with_component
from test_overlays import check_custom, is_kueue

from stillhouse.pipelines.placement import Placement
from stillhouse.pipelines.placement_table import find_table, shipped_tables

PAGE = (MANIFESTS.parent / "docs" / "deploy.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## The queue\n")[1].split("\n## ")[0]


def placements() -> list[Placement]:
    """Return every kind of pod in every shipped table."""
    return [kind for table in shipped_tables() for kind in find_table(table).kinds.values()]


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


def test_other_accelerators_take_the_patches_that_the_page_shows(tmp_path: Path) -> None:
    """docs/deploy.md shows the patches as YAML for a custom overlay."""
    example = yaml.safe_load(SECTION.split("```yaml")[1].split("```")[0])
    resources = with_component(tmp_path, "gpu", **example)
    for resource in resources:
        if is_kueue(resource):
            check_custom(resource)
    [more] = set(check_groups(resources)) - set(check_groups(rendered("gpu")))
    assert more.startswith("nvidia.com/mig-") and more in SECTION
    assert f"requests.{more}" in only(resources, "ResourceQuota")["spec"]["hard"]


def test_named_priorities_exist() -> None:
    there = {one["metadata"]["name"]: one["value"] for one in rendered("gpu") if one["kind"] == "WorkloadPriorityClass"}
    assert {placement.priority for placement in placements()} - {""} <= there.keys()
    assert there["stillhouse-refresh"] > there["stillhouse-experiment"] > 0, "without a class it is 0"
    assert all(f"| `{name}` | {value} |" in SECTION for name, value in there.items())
