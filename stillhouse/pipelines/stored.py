"""Pipelines that a cluster keeps: found by their names, with their versions and the image that these take."""

from __future__ import annotations

import json
from typing import Any

from stillhouse.errors import InputError

VERSIONS = 100
"""How many of the newest versions are looked through."""


def find_pipeline(client: Any, name: str, namespace: str = "", *, shared: bool = True) -> str:
    """The id of the pipeline of a name in a namespace, else of the one that is `shared` by all; "" for none.

    kfp's own look-up by name knows no namespaces. Raises `InputError` where several are of that name.
    """
    found = _named(client, name, namespace)
    if not found and namespace and shared:
        # Asked without a namespace, a server that keeps pipelines as resources lists those of all namespaces.
        found = [entry for entry in _named(client, name, "") if not entry.namespace]
    if len(found) > 1:
        kept = ", ".join(f"{entry.pipeline_id} of {entry.namespace or 'no namespace'}" for entry in found)
        remedy = "delete all but one" if namespace else "give --namespace, or delete all but one"
        raise InputError(f"the cluster has {len(found)} pipelines {name!r} ({kept}); {remedy}")
    return str(found[0].pipeline_id) if found else ""


def newest_versions(client: Any, pipeline: str) -> list[Any]:
    """The versions of the pipeline of an id, the newest first."""
    answer = client.list_pipeline_versions(pipeline, page_size=VERSIONS, sort_by="created_at desc")
    return list(answer.pipeline_versions or [])


def default_image(version: Any) -> str | None:
    """What the parameter `image` of a version is by default, "" for none; `None` for a version without it."""
    spec = version.pipeline_spec or {}
    spec = spec.get("pipeline_spec", spec)  # what is Kubernetes' own of it may stand beside it
    parameters = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    return str(parameters["image"].get("defaultValue", "")) if "image" in parameters else None


def _named(client: Any, name: str, namespace: str) -> list[Any]:
    predicate = {"operation": "EQUALS", "key": "display_name", "stringValue": name}
    answer = client.list_pipelines(filter=json.dumps({"predicates": [predicate]}), namespace=namespace or None)
    return list(answer.pipelines or [])
