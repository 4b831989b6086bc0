"""What tests of versions share: a name for commits, a laptop that ran the first stages, an S3 server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from repositories import call, dvc, free_port, repro, wait_for

from stillhouse.surfaces.workspace import make_workspace


@pytest.fixture(autouse=True)
def git_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name for commits, and nothing of the configuration of who runs the tests."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Stillhouse tests")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tests@stillhouse.example")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_TEMPLATE_DIR", "")  # a repository without a dozen sample hooks
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")


@pytest.fixture(scope="session")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace that ran `validate` and what it needs, and pushed it with the run cache to the folder `shelf`.

    Tests change neither of the two.
    """
    place = tmp_path_factory.mktemp("run-cache")
    make_workspace(place / "laptop", None, "micro")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_NO_ANALYTICS", "1")
        dvc(place / "laptop", "remote", "add", "--default", "shelf", str(place / "shelf"))
    assert repro(place / "laptop", "validate") == (["ingest", "validate"], [])
    call(place / "laptop", "dvc", "push", "--run-cache", "--quiet")
    return place / "laptop"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A bucket of an S3 server, as the settings of a DVC remote; credentials are in the environment."""
    server_module = pytest.importorskip("moto.server", reason="moto, of the extra `dev`, is the S3 server")
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("dvc_s3", reason="the extra `s3` is not installed")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    port = free_port()
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        wait_for(port)
        endpoint = f"http://127.0.0.1:{port}"
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="shelf")
        yield {"url": "s3://shelf/data", "endpointurl": endpoint}
    finally:
        server.stop()
