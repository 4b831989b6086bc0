"""Brings a pipeline into a cluster, where schedules and the watcher start it by its name.

In Kubernetes-native mode the manifests do this; elsewhere pipelines are uploaded through Kubeflow's API.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from stillhouse.pipelines.access import refused
from stillhouse.pipelines.ir import Compiled
from stillhouse.pipelines.stored import find_pipeline, newest_versions


def upload(client: Any, compiled: Compiled, namespace: str = "") -> bool:
    """Uploads a pipeline as a version named by its content; false where that version is there already.

    A pipeline of that name that is shared by all stays unchanged where a namespace is given. Schedules that name no
    version take the newest. Raises `InputError` for what the API refuses, with its reason.
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
            if compiled.version in [version.display_name for version in newest_versions(client, pipeline)]:
                return False
            client.upload_pipeline_version(
                str(path), compiled.version, pipeline_id=pipeline, description=compiled.description
            )
        except ApiException as error:
            raise refused("the pipeline", error) from None
    return True
