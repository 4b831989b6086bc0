"""Uploads a pipeline to a cluster, where schedules and the watcher start it by name.

In Kubernetes-native mode the manifests do this; otherwise pipelines are uploaded through Kubeflow's API.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from stillhouse.pipelines.access import refused
from stillhouse.pipelines.ir import Compiled
from stillhouse.pipelines.stored import find_pipeline, newest_versions


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
