"""Uploading a pipeline to a cluster in memory: once for each content, under the name that schedules look for."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.ir import Compiled
from stillhouse.kubeflow.pipelines.stored import upload


class Memory:
    """The methods of kfp's client that an upload uses."""

    def __init__(self, refuse: int = 0) -> None:
        self.versions: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self.pipelines: list[SimpleNamespace] = []
        self.refuse = refuse

    def list_pipelines(self, filter: str, namespace: str | None) -> Any:
        name = json.loads(filter)["predicates"][0]["stringValue"]
        found = [entry for entry in self.pipelines if (entry.name, entry.namespace) == (name, namespace or "")]
        return SimpleNamespace(pipelines=found or None)

    def upload_pipeline(self, pipeline_package_path: str, pipeline_name: str, description: str, namespace: Any) -> Any:
        if self.refuse:
            from kfp_server_api import ApiException

            raise ApiException(status=self.refuse, reason="no")
        made = SimpleNamespace(pipeline_id=f"p{len(self.pipelines) + 1}", name=pipeline_name, namespace=namespace or "")
        self.pipelines.append(made)
        self.versions[made.pipeline_id] = []
        self._keep(made.pipeline_id, pipeline_name, pipeline_package_path)
        return made

    def upload_pipeline_version(
        self, pipeline_package_path: str, pipeline_version_name: str, pipeline_id: str, description: str
    ) -> None:
        self._keep(pipeline_id, pipeline_version_name, pipeline_package_path)

    def list_pipeline_versions(self, pipeline_id: str, page_token: str, page_size: int, sort_by: str) -> Any:
        """Return one version a page, the newest first."""
        versions = [SimpleNamespace(display_name=name) for name, _ in reversed(self.versions[pipeline_id])]
        at = int(page_token or 0)
        more = str(at + 1) if at + 1 < len(versions) else None
        return SimpleNamespace(pipeline_versions=versions[at : at + 1] or None, next_page_token=more)

    def _keep(self, pipeline: str, name: str, path: str) -> None:
        self.versions[pipeline].append((name, yaml.safe_load(Path(path).read_text())))


def compiled(text: str = "one") -> Compiled:
    return Compiled({"pipelineInfo": {"name": "refresh", "description": text}}, {})


def test_the_same_content_is_uploaded_once() -> None:
    client = Memory()
    assert upload(client, compiled()).endswith("was uploaded") and [entry.name for entry in client.pipelines] == [
        "refresh"
    ]
    assert client.versions["p1"][-1] == (compiled().version, compiled().spec)
    kept = len(client.versions["p1"])
    assert "is the newest" in upload(client, compiled()) and len(client.versions["p1"]) == kept
    assert upload(client, compiled("two")) and client.versions["p1"][-1][0] == compiled("two").version
    assert f"but {compiled('two').version} is newer" in upload(client, compiled()), "schedules start the newest"
    assert len(client.versions["p1"]) == kept + 1


def test_a_namespace_has_its_own() -> None:
    """Shared pipelines and those of other namespaces stay unchanged."""
    client = Memory()
    for namespace in ("", "one", "two"):
        for text in ("one", "one", "two"):
            upload(client, compiled(text), namespace)
    assert [entry.namespace for entry in client.pipelines] == ["", "one", "two"]
    assert [len(versions) for versions in client.versions.values()] == [3, 3, 3]


def test_two_pipelines_with_one_name_are_reported() -> None:
    client = Memory()
    client.pipelines = [SimpleNamespace(pipeline_id=one, name="refresh", namespace="") for one in ("p1", "p2")]
    with pytest.raises(InputError, match=r"2 pipelines 'refresh' \(p1 in no namespace, p2.*; give --namespace, or"):
        upload(client, compiled())
