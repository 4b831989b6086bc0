"""Keys of DVC's remotes in pods: secret files mounted where DVC's libraries look, or missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from repositories import commit_data, dvc, make_repository

from stillhouse.core.errors import InputError
from stillhouse.core.remote.dvc_source import fetch

FILES = {"text.txt": "behind a key"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty home of a pod, without a key agent."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("SSH_AUTH_SOCK", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def mount(secret: dict[str, Path], path: Path) -> None:
    """Mount a secret as Kubernetes does: as links to files that every user may read."""
    (path / "..data").mkdir(parents=True)
    for name, file in secret.items():
        shutil.copyfile(file, path / "..data" / name)
        (path / "..data" / name).chmod(0o644)
        (path / name).symlink_to(Path("..data") / name)


def test_a_pod_reads_a_corpus_by_ssh_with_the_key_of_its_secret(
    ssh: dict[str, str], home: Path, tmp_path: Path
) -> None:
    """The repository has only the remote's address, and DVC finds the key in the pod's home."""
    pytest.importorskip("dvc_ssh", reason="the extra `ssh` is not installed")
    folder = make_repository(tmp_path / "articles", ssh["url"])
    dvc(folder, "remote", "modify", "--local", "storage", "keyfile", ssh["keyfile"])
    commit = commit_data(folder, "corpus", FILES, "Articles")
    origin = f"{folder}.git"
    (home / ".ssh").mkdir()  # an absent secret is mounted as an empty folder
    with pytest.raises(InputError, match="cannot read corpus"):
        fetch(origin, commit, {"corpus": tmp_path / "without"})
    (home / ".ssh").rmdir()
    mount({"id_ed25519": Path(ssh["keyfile"])}, home / ".ssh")
    fetch(origin, commit, {"corpus": tmp_path / "corpus"})
    assert (tmp_path / "corpus" / "text.txt").read_text() == FILES["text.txt"]


@pytest.fixture
def google_key(tmp_path: Path) -> Path:
    """Write the key of a service account, in the format of Google's console."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    pem, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    content = {
        "type": "service_account",
        "project_id": "a-project",
        "private_key": key.private_bytes(pem, plain, serialization.NoEncryption()).decode(),
        "client_email": "steps@a-project.example",
        "token_uri": "https://localhost:1/token",
    }
    (tmp_path / "key.json").write_text(json.dumps(content))
    return tmp_path / "key.json"


def account_of_gcs() -> str:
    """Return the account that DVC's GCS remotes would use, or "nobody" if there is no key. This sends no request."""
    from gcsfs.credentials import GoogleCredentials

    found = GoogleCredentials(project=None, access="full_control", token=None).credentials
    return found.service_account_email if found else "nobody"


def test_a_pod_reaches_gcs_with_the_key_of_its_secret(
    google_key: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing secret is not an error, because Google has other ways, such as the pod's identity."""
    pytest.importorskip("gcsfs", reason="the extra `gcs` is not installed")
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # do not look for a Google VM
    place = tmp_path / "stillhouse-gcs"
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(place))
    place.mkdir()
    assert account_of_gcs() == "nobody"
    place.rmdir()
    mount({"application_default_credentials.json": google_key}, place)
    assert account_of_gcs() == "steps@a-project.example"
