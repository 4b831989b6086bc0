"""Uploading a pipeline to a cluster in memory: once for each content, and under the name that schedules look for."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from pipelines.ir import Compiled
from pipelines.upload import upload
from stillhouse.errors import InputError


class Memory:
    """What of kfp's client is used."""

    def __init__(self, refuse: int = 0) -> None:
        self.versions: list[tuple[str, dict[str, Any]]] = []
        self.named = ""
        self.refuse = refuse

    def get_pipeline_id(self, name: str) -> str | None:
        return "p1" if self.named == name else None

    def upload_pipeline(self, pipeline_package_path: str, pipeline_name: str, description: str, namespace: Any) -> Any:
        if self.refuse:
            from kfp_server_api import ApiException

            raise ApiException(status=self.refuse, reason="no")
        self.named = pipeline_name
        self._keep(pipeline_name, pipeline_package_path)
        return SimpleNamespace(pipeline_id="p1")

    def upload_pipeline_version(
        self, pipeline_package_path: str, pipeline_version_name: str, pipeline_id: str, description: str
    ) -> None:
        assert pipeline_id == "p1"
        self._keep(pipeline_version_name, pipeline_package_path)

    def list_pipeline_versions(self, pipeline_id: str, page_size: int, sort_by: str) -> Any:
        return SimpleNamespace(pipeline_versions=[SimpleNamespace(display_name=name) for name, _ in self.versions])

    def _keep(self, name: str, path: str) -> None:
        self.versions.append((name, yaml.safe_load(Path(path).read_text())))


def compiled(text: str = "one") -> Compiled:
    return Compiled({"pipelineInfo": {"name": "refresh", "description": text}}, {})


def test_a_content_is_uploaded_once() -> None:
    client = Memory()
    assert upload(client, compiled()) and client.named == "refresh"
    assert client.versions[-1] == (compiled().version, compiled().spec)
    assert not upload(client, compiled())
    assert upload(client, compiled("two")) and client.versions[-1][0] == compiled("two").version


def test_a_refusal_is_told() -> None:
    with pytest.raises(InputError, match=r"refuses the pipeline \(403\)"):
        upload(Memory(refuse=403), compiled())


def test_the_client_has_the_methods_that_are_called() -> None:
    """By kfp's own signatures, since the stand-in above takes whatever it is given."""
    from kfp import Client

    for name in ("get_pipeline_id", "upload_pipeline", "upload_pipeline_version", "list_pipeline_versions"):
        own = inspect.signature(getattr(Memory, name)).parameters
        assert set(own) <= set(inspect.signature(getattr(Client, name)).parameters), name
