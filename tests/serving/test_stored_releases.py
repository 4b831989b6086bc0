"""Serving a release from object storage: a release that is copied there answers only once it is complete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import pytest
from azure_server import azure_server, connection
from gcs_server import BUCKET, gcs_server
from s3_server import s3_server
from serving_releases import Running, open_release, running

from stillhouse import cli
from stillhouse.artifacts import MANIFEST
from stillhouse.errors import InputError
from stillhouse.remote import storage
from stillhouse.serving.fetcher import Fetcher
from stillhouse.serving.source import FolderSource, Unreachable, repository_of, storage_of
from stillhouse.serving.stored_source import StoredSource

QUERY = "where does the red bird one sing"


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, two_releases: list[Path]) -> Path:
    """A folder that acts as storage at `local://` and holds the first release. This process fetches from it."""
    monkeypatch.setattr(storage, "LIBRARIES", {"local": ("fsspec", ""), "absent": ("no_such_library", "pip install x")})
    monkeypatch.setattr("stillhouse.serving.source.LIBRARIES", storage.LIBRARIES)

    def fetch(self: Fetcher, asked: Mapping[str, Any], name: str) -> None:
        for part, target in asked["parts"].items():
            storage.StoredFolder(asked["storage"]).fetch(part, Path(target))

    monkeypatch.setattr(Fetcher, "fetch", fetch)
    shutil.copytree(two_releases[0], tmp_path / "shelf" / "in-use")
    return tmp_path / "shelf" / "in-use"


def source(shelf: Path, folder: Path, **more: Any) -> StoredSource:
    return StoredSource(f"local://{shelf}", folder, [].append, **more)


@pytest.fixture
def service(shelf: Path, tmp_path: Path) -> Iterator[Running]:
    with running(source(shelf, tmp_path / "fetched")) as found:
        yield found


def place(release: Path, shelf: Path, *names: str) -> None:
    """Replaces stored parts by those of another release."""
    for name in names:
        shutil.rmtree(shelf / name)
        shutil.copytree(release / name, shelf / name)


def test_another_release_answers_once_all_of_it_is_there(
    service: Running, shelf: Path, two_releases: list[Path], tmp_path: Path
) -> None:
    names = [open_release(FolderSource(folder)).name for folder in two_releases]
    watched = service.service.shelf
    assert service.search(query=QUERY)["release"] == names[0]
    assert service.client.get("/info").json()["storage"] == f"local://{shelf}"
    assert not watched.look(), "nothing changed"
    place(two_releases[1], shelf, "index", "retriever")
    assert not watched.look() and service.search(query=QUERY)["release"] == names[0], "half of each"
    place(two_releases[1], shelf, "corpus", "hybrid")
    assert watched.look() and service.search(query=QUERY)["release"] == names[1]
    place(two_releases[0], shelf, "corpus", "hybrid", "index", "retriever")
    shutil.rmtree(tmp_path / "fetched")
    assert watched.look() and service.search(query=QUERY)["release"] == names[0], "still open: nothing is fetched"


def test_files_that_arrive_after_their_manifest_are_waited_for(
    service: Running, shelf: Path, two_releases: list[Path]
) -> None:
    watched = service.service.shelf
    first = service.search(query=QUERY)["release"]
    place(two_releases[1], shelf, "corpus", "hybrid", "index", "retriever")
    files = [path for path in (shelf / "index").iterdir() if path.name != MANIFEST]
    late = max(files, key=lambda path: path.stat().st_size)
    whole = late.read_bytes()
    late.write_bytes(whole[:-1])
    assert not watched.look() and watched.unreachable and "index" in watched.unreachable.reason
    assert service.search(query=QUERY)["release"] == first
    late.unlink()
    assert not watched.look() and watched.unreachable
    late.write_bytes(whole)
    assert watched.look() and not watched.unreachable
    assert service.search(query=QUERY)["release"] == open_release(FolderSource(two_releases[1])).name


def test_a_fetched_release_is_checked_again_after_a_restart(shelf: Path, tmp_path: Path) -> None:
    first = source(shelf, tmp_path / "fetched")
    folders = first.folders()
    first.end()
    shortened = folders["corpus"] / "passages.parquet"
    shortened.write_bytes(shortened.read_bytes()[:-1])
    second = source(shelf, tmp_path / "fetched")
    assert open_release(second).name == open_release(FolderSource(shelf)).name
    second.end()


def test_a_manifest_cannot_name_files_elsewhere(shelf: Path, tmp_path: Path) -> None:
    path = shelf / "index" / MANIFEST
    for name in ("../outside", "/etc/outside", "a/../../outside", "..\\outside", ""):
        content = json.loads(path.read_bytes())
        content["files"] = {name: "0"}
        path.write_text(json.dumps(content))
        found = source(shelf, tmp_path / "fetched")
        with pytest.raises(InputError, match="outside its folder"):
            found.folders()
        found.end()
    path.write_text("[]")
    with pytest.raises(InputError, match="damaged"):
        storage.StoredFolder(f"local://{shelf}").fetch("index", tmp_path / "index")
    assert not list(tmp_path.rglob("outside")) and not (tmp_path / "index").exists()


def test_an_invalid_release_is_reported(shelf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(shelf / "corpus")
    empty = source(shelf, tmp_path / "fetched")
    with pytest.raises(InputError, match="holds no corpus"):
        empty.folders()
    empty.end()
    for words in (
        ["serve", f"local://{shelf}", "--release", "v1.0.0"],
        ["serve", f"local://{shelf}", "--corpus", str(tmp_path)],
        ["serve", "absent://bucket/in-use"],
        ["serve", f"local://user:sesame@{shelf}"],
    ):
        capsys.readouterr()
        assert cli.main([*words, "--port", "0"]) == 2, words
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "sesame" not in said
    assert "pip install x" not in said
    assert storage_of(f"local://{shelf}") and not repository_of(f"local://{shelf}")
    assert not storage_of("file:///mnt/models") and not storage_of("git@host:path") and not storage_of("in-use")


@pytest.fixture
def bucket(scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """An empty bucket, to which the environment leads."""
    if scheme == "s3":
        with s3_server(monkeypatch) as endpoint:
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
            yield
    else:
        with gcs_server(monkeypatch) if scheme == "gs" else azure_server(monkeypatch, tmp_path / "azurite"):
            yield


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_bucket(scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, two_releases: list[Path]) -> None:
    """The real library and the fetching process run against a server of S3, Google Cloud Storage or Azure."""
    there = fsspec.filesystem(scheme, skip_instance_cache=True)
    lines: list[str] = []
    found = StoredSource(f"{scheme}://{BUCKET}/in-use", tmp_path / "fetched", lines.append)
    with pytest.raises(InputError, match="holds no retriever"):
        found.folders()
    for number, release in enumerate(two_releases):
        there.put(f"{release}/", f"{BUCKET}/in-use", recursive=True)
        state = found.state()
        assert state == found.state() and len(lines) == number
        assert open_release(found).name == open_release(FolderSource(release)).name
    assert len(list((tmp_path / "fetched").glob("stored-*"))) == 2
    monkeypatch.setattr("stillhouse.serving.stored_source.SECONDS", 2.0)
    nowhere = dict.fromkeys(("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"), "http://127.0.0.1:1")
    for name, value in (nowhere | {"AZURE_STORAGE_CONNECTION_STRING": connection(1)}).items():
        monkeypatch.setenv(name, value)
    lost = StoredSource(f"{scheme}://{BUCKET}/in-use", tmp_path / "lost", lines.append)
    with pytest.raises(Unreachable, match=f"cannot read {scheme}://shelf/in-use"):
        lost.state()
    found.end()
    lost.end()
