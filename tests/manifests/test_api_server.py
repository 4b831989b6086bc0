"""Where `KUBECONFIG` names a cluster, its API server is asked whether it would take every resource of every overlay.

Nothing is applied but a namespace of the test's own, at the restricted level, which is deleted afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest
from rendered_overlays import OVERLAYS, Resource, program, rendered


def kubectl(*arguments: str, given: Resource | None = None) -> subprocess.CompletedProcess[str]:
    text = json.dumps(given) if given else None
    command = [program("kubectl"), *arguments, *(["-f", "-"] if given else [])]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG is not set: no API server was asked about the manifests")
    name = f"stillhouse-dry-run-{os.getpid()}"
    [own] = [one for one in rendered("single-node") if one["kind"] == "Namespace"]
    made = kubectl("apply", given=own | {"metadata": own["metadata"] | {"name": name}})
    assert made.returncode == 0, made.stderr
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


def moved(resource: Resource, namespace: str) -> Resource:
    """The resource in another namespace; what is of the whole cluster stays as it is."""
    metadata = dict(resource["metadata"])
    if "namespace" in metadata:
        metadata["namespace"] = namespace
    return resource | {"metadata": metadata}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_takes_every_resource(overlay: str, namespace: str) -> None:
    absent = set()
    for resource in rendered(overlay):
        asked = kubectl("apply", "--server-side", "--dry-run=server", given=moved(resource, namespace))
        name = f"{resource['kind']}/{resource['metadata']['name']}"
        if "no matches for kind" in asked.stderr or "resource mapping not found" in asked.stderr:
            absent.add(resource["kind"])
            continue
        assert asked.returncode == 0, f"{name}: {asked.stderr}"
        assert "would violate PodSecurity" not in asked.stderr, f"{name}: {asked.stderr}"
    if absent:
        pytest.skip(f"the rest was taken, but this cluster has no {', '.join(sorted(absent))}")
