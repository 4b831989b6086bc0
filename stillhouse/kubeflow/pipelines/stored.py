"""A cluster's pipelines: finds them by name, with their versions, and uploads new versions.

Schedules and the watcher start them by name. In Kubernetes-native mode the manifests create them, otherwise `upload`
does, through Kubeflow's API.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.access import refused
from stillhouse.kubeflow.pipelines.ir import Compiled

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


def _named(client: Any, name: str, namespace: str) -> list[Any]:
    answer = client.list_pipelines(filter=by_name(name), namespace=namespace or None)
    return list(answer.pipelines or [])


def upload(client: Any, compiled: Compiled, namespace: str = "") -> str:
    """Uploads a pipeline as a version named by its content, and returns a sentence on what the cluster has now.

    A version that already exists is not uploaded again; the sentence names the newest if that is another.

    If a namespace is given, a shared pipeline of the same name stays unchanged. Schedules without a version use the
    newest. Raises `InputError` with the reason if the API refuses it.
    """
    from kfp_server_api import ApiException

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{compiled.version}.yaml"
        path.write_text(compiled.as_ir(), encoding="utf-8")
        try:
            pipeline = find_pipeline(client, compiled.name, namespace, shared=False)
            if not pipeline:
                made = client.upload_pipeline(str(path), compiled.name, compiled.summary, namespace or None)
                pipeline = made.pipeline_id
            there = [version.display_name for version in newest_versions(client, pipeline)]
            if compiled.version in there[:1]:
                return f"version {compiled.version} already exists, and is the newest"
            if compiled.version in there:
                return (
                    f"version {compiled.version} already exists, but {there[0]} is newer, and schedules and watches "
                    f"start that; set `version: {compiled.version}` in their file, or delete {there[0]}"
                )
            client.upload_pipeline_version(
                str(path), compiled.version, pipeline_id=pipeline, description=compiled.description
            )
        except ApiException as error:
            raise refused("the pipeline", error) from None
    return f"version {compiled.version} was uploaded"
