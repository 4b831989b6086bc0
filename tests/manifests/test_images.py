"""Images are named by digest, so they cannot change. Images built here get their digest when pushed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rendered_overlays import EVERY_OVERLAY, Resource, pod_specs, with_component

BY_DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
BUILT_HERE = {
    "stillhouse-ops:0.2.0": "built by `make images`; a registry says its digest, which an overlay of one's own names",
    "stillhouse:0.2.0-cpu": "the same",
    "stillhouse:0.2.0": "the same; and each TrainJob brings the image of its run in the runtime's place",
}
"""Images that no overlay of ours can name by digest, and why."""
DIGEST = "sha256:" + "0" * 64


def images(resources: tuple[Resource, ...]) -> set[str]:
    """Return the images of all pods that the resources create, except those that pipelines take as a parameter."""
    return {
        container["image"]
        for spec in pod_specs(resources).values()
        for container in [*spec["containers"], *spec.get("initContainers", [])]
    }


@pytest.mark.parametrize("overlay", EVERY_OVERLAY)
def test_an_overlay_of_ones_own_names_them_all_by_digest(overlay: str, tmp_path: Path) -> None:
    """docs/deploy.md shows such an overlay."""
    names = {image.split(":")[0] for image in BUILT_HERE}
    pinned: list[dict[str, Any]] = [
        {"name": name, "newName": f"registry.example/{name}", "digest": DIGEST} for name in sorted(names)
    ]
    found = images(with_component(tmp_path, overlay, images=pinned))
    assert found and all(BY_DIGEST.fullmatch(image) for image in found), found
