"""Releases over real remotes: SSH with an sshd on loopback, S3 and GCS with servers, and errors for wrong ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure_server import CONTAINER, azure_server
from gcs_server import BUCKET, gcs_server
from repositories import PATHS, call, dvc, make_repository, release, write_stages

from stillhouse.core.errors import InputError


@pytest.fixture
def gs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Yield DVC remote settings for a bucket on a GCS server, which needs no credentials."""
    with gcs_server(monkeypatch):
        yield {"url": f"gs://{BUCKET}/data"}


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield DVC remote settings for a container of Azurite; the environment has its credentials."""
    with azure_server(monkeypatch, tmp_path / "azurite"):
        yield {"url": f"azure://{CONTAINER}/data"}


def workspace(place: Path, remote: dict[str, str]) -> Path:
    folder = make_repository(place / "work", remote["url"])
    for key, value in remote.items():
        if key != "url":
            dvc(folder, "remote", "modify", "storage", key, value)
    write_stages(folder)
    return folder


@pytest.mark.parametrize("kind", ["ssh", "s3", "gs", "azure"])
def test_a_release_can_be_pulled_from_its_remote(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Another clone pulls the release with only the repository's address and its own credentials."""
    pytest.importorskip(f"dvc_{kind}", reason=f"the extra `{kind}` is not installed")
    remote = request.getfixturevalue(kind)
    folder = workspace(tmp_path, remote)
    assert release(folder, weights="over the wire").release.name == "v1.0.0"
    call(tmp_path, "git", "clone", "--quiet", str(tmp_path / "work.git"), str(tmp_path / "laptop"))
    dvc(tmp_path / "laptop", "pull")
    assert (tmp_path / "laptop" / PATHS["retriever"] / "weights.txt").read_text() == "over the wire"


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("s3", {"url": "s3://another/data"}),
        ("gs", {"url": "gs://another/data"}),
        ("azure", {"url": "azure://another/data"}),
        ("ssh", {"keyfile": "host"}),
    ],
    ids=["missing S3 bucket", "missing GCS bucket", "missing Azure container", "wrong key"],
)
def test_a_remote_that_cannot_be_written_is_named_with_the_remedy(
    kind: str, change: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip(f"dvc_{kind}", reason=f"the extra `{kind}` is not installed")
    remote = request.getfixturevalue(kind)
    if kind == "ssh":
        change = {"keyfile": str(tmp_path / change["keyfile"])}
    folder = workspace(tmp_path, remote | change)
    with pytest.raises(InputError, match=r"(?s)DVC cannot .*may this machine write there .*you can repeat"):
        release(folder)
    assert "retriever@" not in call(tmp_path / "work.git", "git", "tag"), "nothing was released"
