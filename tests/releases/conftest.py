"""Fixtures of the release tests: a name for commits, a repository to release from, S3 and SSH servers."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_identity import set_git_identity
from ports import free_port, wait_for
from repositories import call, make_repository, write_stages
from s3_server import BUCKET, s3_server

from stillhouse.releases import data

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


@pytest.fixture(autouse=True)
def git_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a name for commits, and ignore the git configuration of the user who runs the tests."""
    set_git_identity(monkeypatch)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a repository whose dvc.yaml makes both artifacts. Nothing is released yet."""
    place = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patch:
        set_git_identity(patch)
        folder = make_repository(place / "work", "../../storage")
        write_stages(folder)
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    """A copy of the template: `work`, its `origin` in `work.git`, data in `storage`."""
    shutil.copytree(template, tmp_path / "place", symlinks=True)
    folder = tmp_path / "place" / "work"
    call(folder, "git", "remote", "set-url", "origin", str(tmp_path / "place" / "work.git"))
    return tmp_path / "place"


@pytest.fixture
def git_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the DVC part, for tests that are only about git."""
    monkeypatch.setattr(data, "push", lambda folder: None)
    monkeypatch.setattr(data, "record", lambda folder: None)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Yield DVC remote settings for a bucket on an S3 server. The credentials are in the environment."""
    with s3_server(monkeypatch) as endpoint:
        yield {"url": f"s3://{BUCKET}/data", "endpointurl": endpoint}


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield DVC remote settings for a folder behind an sshd that accepts one key."""
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
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd needs this folder if root runs it
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config")], stderr=subprocess.PIPE)
    try:
        wait_for(port)
        address = f"ssh://{getpass.getuser()}@127.0.0.1:{port}{tmp_path / 'storage'}"
        yield {"url": address, "keyfile": str(tmp_path / "user")}
    finally:
        server.terminate()
        server.wait()
