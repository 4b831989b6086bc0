"""What the tests of documented commands share: a name for commits, fake clusters, corpora under documented names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_identity import set_git_identity

sys.path.extend(
    str(Path(__file__).resolve().parents[1] / name)
    for name in ("pipelines", "releases", "releases/refresh", "monitoring", "manifests", "serving", "kubernetes")
)
from kubeflow_server import Api, serve
from released_repositories import released
from serving_releases import two_releases

__all__ = ["released", "two_releases"]

ENDPOINT = "KF_PIPELINES_ENDPOINT"


@pytest.fixture(autouse=True)
def git_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name for commits, and nothing of the configuration of who runs the tests."""
    set_git_identity(monkeypatch)


@pytest.fixture
def kubeflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Api]:
    """Kubeflow's API on this machine, where the environment of a pod says that it is."""
    with serve(monkeypatch, tmp_path) as api:
        monkeypatch.setenv(ENDPOINT, api.host)
        api.states = [{"state": "RUNNING"}, {"state": "SUCCEEDED"}]
        yield api
