"""Releases over real remotes: SSH with an sshd on loopback, S3 and GCS with servers; what a wrong one says."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from repositories import PATHS, call, dvc, free_port, make_repository, release, wait_for

from stillhouse.errors import InputError

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A place behind an sshd that takes one key, as the settings of a DVC remote."""
    if not Path(SSHD).is_file():
        pytest.skip("no sshd here; `make test-tools` installs it on Debian")
    for name in ("host", "user"):
        call(tmp_path, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name))
    port = free_port()
    settings = {
        "ListenAddress": "127.0.0.1",
        "Port": port,
        "HostKey": tmp_path / "host",
        "AuthorizedKeysFile": tmp_path / "user.pub",
        "PasswordAuthentication": "no",
        "StrictModes": "no",
        "PermitRootLogin": "prohibit-password",
        "Subsystem": "sftp internal-sftp",
        "PidFile": tmp_path / "pid",
    }
    (tmp_path / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd, run by root, wants to be locked into
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config")], stderr=subprocess.PIPE)
    try:
        wait_for(port)
        address = f"ssh://{getpass.getuser()}@127.0.0.1:{port}{tmp_path / 'shelf'}"
        yield {"url": address, "keyfile": str(tmp_path / "user")}
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def gs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A bucket of a GCS server, as the settings of a DVC remote; it asks for no credentials."""
    emulator = pytest.importorskip("gcp_storage_emulator.server", reason="the extra `dev` has the GCS server")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{(port := free_port())}")
    server = emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket="shelf")
    server.start()
    try:
        wait_for(port)
        yield {"url": "gs://shelf/data"}
    finally:
        server.stop()


def workspace(place: Path, remote: dict[str, str]) -> Path:
    folder = make_repository(place / "work", remote["url"])
    for key, value in remote.items():
        if key != "url":
            dvc(folder, "remote", "modify", "shelf", key, value)
    stages = {name: {"cmd": f"echo {name}", "outs": [path]} for name, path in PATHS.items()}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    (folder / "params.yaml").write_text("{}\n")
    call(folder, "git", "add", "--all")
    call(folder, "git", "commit", "--quiet", "--message", "Stages")
    call(folder, "git", "push", "--quiet", "origin", "main")
    return folder


@pytest.mark.parametrize("kind", ["ssh", "s3", "gs"])
def test_a_release_travels(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What one machine releases another pulls, knowing the repository's address and its own credentials alone."""
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
        ("ssh", {"keyfile": "host"}),
    ],
    ids=["missing S3 bucket", "missing GCS bucket", "wrong key"],
)
def test_a_remote_that_cannot_be_written_is_named_with_the_remedy(
    kind: str, change: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip(f"dvc_{kind}", reason=f"the extra `{kind}` is not installed")
    remote = request.getfixturevalue(kind)
    if kind == "ssh":
        change = {"keyfile": str(tmp_path / change["keyfile"])}
    folder = workspace(tmp_path, remote | change)
    with pytest.raises(InputError, match=r"(?s)DVC cannot .*may this machine write there .*may be repeated"):
        release(folder)
    assert "retriever@" not in call(tmp_path / "work.git", "git", "tag"), "nothing was released"
