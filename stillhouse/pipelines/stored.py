"""Finds a cluster's pipelines by name, with their versions and default images."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from stillhouse.errors import InputError

PAGE = 100
"""How many entries a request lists."""


def find_pipeline(client: Any, name: str, namespace: str = "", *, shared: bool = True) -> str:
    """The id of the pipeline with this name in a namespace, else of the one `shared` by all; "" for none.

    kfp's own lookup by name ignores namespaces. Raises `InputError` if several have this name.
    """
    found = _named(client, name, namespace)
    if not found and namespace and shared:
        # Without a namespace, a server that stores pipelines as resources lists those of all namespaces.
        found = [entry for entry in _named(client, name, "") if not entry.namespace]
    if len(found) > 1:
        kept = ", ".join(f"{entry.pipeline_id} in {entry.namespace or 'no namespace'}" for entry in found)
        remedy = "delete all but one" if namespace else "give --namespace, or delete all but one"
        raise InputError(f"the cluster has {len(found)} pipelines {name!r} ({kept}); {remedy}")
    return str(found[0].pipeline_id) if found else ""


def newest_versions(client: Any, pipeline: str) -> list[Any]:
    """All versions of the pipeline with this id, newest first."""
    return all_pages(partial(client.list_pipeline_versions, pipeline, sort_by="created_at desc"), "pipeline_versions")


def all_pages(ask: Callable[..., Any], field: str) -> list[Any]:
    """What kfp lists page by page: the entries in `field` of every answer of `ask(page_token=, page_size=)`."""
    found: list[Any] = []
    token = ""
    while True:
        answer = ask(page_token=token, page_size=PAGE)
        found += getattr(answer, field) or []
        token = answer.next_page_token or ""
        if not token:
            return found


def by_name(name: str) -> str:
    """Kubeflow's filter for the entries with this name."""
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})


def default_image(version: Any) -> str | None:
    """The default of a version's parameter `image`, "" for none; `None` for a version without the parameter."""
    spec = version.pipeline_spec or {}
    spec = spec.get("pipeline_spec", spec)  # Kubernetes' settings may be next to it
    parameters = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    return str(parameters["image"].get("defaultValue", "")) if "image" in parameters else None


def _named(client: Any, name: str, namespace: str) -> list[Any]:
    answer = client.list_pipelines(filter=by_name(name), namespace=namespace or None)
    return list(answer.pipelines or [])
