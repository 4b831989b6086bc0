"""Fixtures for the tests of documented commands: a name for commits, releases, and a fake cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_identity import set_git_identity

sys.path.extend(
    str(Path(__file__).resolve().parents[1] / name)
    for name in (
        "kubeflow/pipelines",
        "releases",
        "releases/refresh",
        "core/monitoring",
        "manifests",
        "serving",
        "kubeflow",
    )
)
from kubeflow_server import Api, serve
from released_repositories import released
from served_commands import Served
from serving_releases import two_releases
from small_workspaces import make_small
from terminal import Terminal

__all__ = ["released", "two_releases"]

ENDPOINT = "KF_PIPELINES_ENDPOINT"


@pytest.fixture(autouse=True)
def git_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name for commits, without the git configuration of whoever runs the tests."""
    set_git_identity(monkeypatch)


@pytest.fixture
def kubeflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Api]:
    """A local Kubeflow API, at the address that a pod's environment gives."""
    with serve(monkeypatch, tmp_path) as api:
        monkeypatch.setenv(ENDPOINT, api.host)
        api.states = [{"state": "RUNNING"}, {"state": "SUCCEEDED"}]
        yield api


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in an empty folder. The workspaces that are made in it become small."""
    return Terminal(tmp_path, monkeypatch, after=make_small)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    made = Served(monkeypatch)
    yield made
    made.end()
