"""A fake cluster for the tests of several nodes, used through the real Kubernetes client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cluster import NAMESPACE, FakeCluster, own_pod
from local_server import local_server

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.kubeflow.trainjob.cluster import Cluster
from stillhouse.kubeflow.trainjob.settings import POD


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCluster]:
    """A cluster with nothing in it but the step's own pod."""
    cluster = FakeCluster()
    pod = own_pod()
    cluster.pods[pod["metadata"]["name"]] = pod
    monkeypatch.setenv(POD, pod["metadata"]["name"])
    (tmp_path / "namespace").write_text(NAMESPACE)
    monkeypatch.setattr("stillhouse.core.context.NAMESPACE", tmp_path / "namespace")
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "volume"))
    with local_server(cluster.answer) as cluster.url:
        yield cluster


@pytest.fixture
def logged() -> list[str]:
    """The lines of the step's log."""
    return []


@pytest.fixture
def cluster(fake: FakeCluster, logged: list[str], monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return the fake cluster as a step sees it, without pauses between requests."""
    from kubernetes import client

    settings = client.Configuration(host=fake.url)
    settings.retries = False
    made = Cluster(client.ApiClient(settings), NAMESPACE, logged.append, sleep=lambda seconds: None)
    monkeypatch.setattr("stillhouse.kubeflow.trainjob.launch.connect", lambda what_for: None)
    monkeypatch.setattr("stillhouse.kubeflow.trainjob.launch.Cluster", lambda *given: made)
    return made


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    with whole_folder(tmp_path / "tokens") as staging:
        (staging / "tokens.bin").write_bytes(b"0123")
        write_manifest(staging, "tokenize", {}, {}, {})
    return tmp_path / "tokens"
