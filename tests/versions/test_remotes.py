"""Releases over real remotes: SSH with an sshd on loopback, S3 with a server process; what a wrong one says."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from repositories import PATHS, call, dvc, make_repository, release

from stillhouse.errors import InputError

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(300):
        with socket.socket() as found:
            if found.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing answers at port {port}")


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A place behind an sshd that takes one key, as the settings of a DVC remote."""
    if not Path(SSHD).is_file():
        pytest.skip("no sshd here; Debian's package openssh-server has it")
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


@pytest.mark.parametrize("kind", ["ssh", "s3"])
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
    [("s3", {"url": "s3://another/data"}), ("ssh", {"keyfile": "host"})],
    ids=["missing bucket", "wrong key"],
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
