"""If `KUBECONFIG` names a cluster, its API server must accept every resource of every overlay in a dry run.

The test really creates only its own namespace, at the restricted level, and the `Pipeline` objects in it: Kubeflow
accepts a version only if its pipeline exists, and a dry run creates none. It deletes the namespace afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from subprocess import CompletedProcess

import pytest
from rendered_overlays import OVERLAYS, Resource, program, rendered

Apply = Callable[[Resource, bool], CompletedProcess[str]]
"""Applies a resource to an API server, as a dry run or for real."""


def kubectl(*arguments: str, given: Resource | None = None) -> CompletedProcess[str]:
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
    """The resource in another namespace; cluster-wide resources stay unchanged."""
    metadata = dict(resource["metadata"])
    if "namespace" in metadata:
        metadata["namespace"] = namespace
    return resource | {"metadata": metadata}


def is_pipeline(resource: Resource) -> bool:
    return resource["kind"] == "Pipeline" and resource["apiVersion"].startswith("pipelines.kubeflow.org/")


def ask(resources: Sequence[Resource], apply: Apply) -> set[str]:
    """Apply the pipelines for real, then all other resources in a dry run. Return the kinds that the cluster lacks."""
    absent = set()
    for resource in sorted(resources, key=is_pipeline, reverse=True):
        asked = apply(resource, not is_pipeline(resource))
        name = f"{resource['kind']}/{resource['metadata']['name']}"
        if "no matches for kind" in asked.stderr or "resource mapping not found" in asked.stderr:
            absent.add(resource["kind"])
            continue
        assert asked.returncode == 0, f"{name}: {asked.stderr}"
        assert "would violate PodSecurity" not in asked.stderr, f"{name}: {asked.stderr}"
    return absent


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_accepts_every_resource(overlay: str, namespace: str) -> None:
    def apply(resource: Resource, dry: bool) -> CompletedProcess[str]:
        flags = ["--dry-run=server"] if dry else []
        return kubectl("apply", "--server-side", *flags, given=moved(resource, namespace))

    absent = ask(rendered(overlay), apply)
    if absent:
        pytest.skip(f"the rest was taken, but this cluster has no {', '.join(sorted(absent))}")
