"""A service for a git repository's releases: it fetches the release in use and answers from it, never half of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dulwich.porcelain  # noqa: F401  # writes to the stderr of its import for ever, which must not be one test's
import pytest
from released_repositories import FIGURES, VERDICT, Repository
from serving_releases import Running, open_release, running

from stillhouse import cli
from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.core.errors import InputError
from stillhouse.core.remote.dvc_source import fetch
from stillhouse.core.remote.git import Git
from stillhouse.releases.tags import Release, publish, read_history
from stillhouse.serving.released_source import ReleasedSource
from stillhouse.serving.source import FolderSource, Unreachable, repository_of

QUERY = "where does the red bird one sing"


@pytest.fixture
def repository(released: Repository, tmp_path: Path) -> Repository:
    """A copy whose tags a test may move; v1.0.0 is in use."""
    for name in ("work", "work.git"):
        shutil.copytree(released.place / name, tmp_path / name, symlinks=True)
    subprocess.run(["git", "remote", "set-url", "origin", tmp_path / "work.git"], cwd=tmp_path / "work", check=True)
    found = Repository(tmp_path, released.releases)
    found.step("v1.0.0")
    return found


def source(repository: Repository, folder: Path, lines: list[str] | None = None, **more: Any) -> ReleasedSource:
    return ReleasedSource(repository.address, folder, (lines if lines is not None else []).append, **more)


@pytest.fixture
def fetched_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches in this process, which has already imported DVC."""

    def run(self: ReleasedSource, release: Release, parts: Mapping[str, str]) -> None:
        fetch(self._repository, release.commit, {path: Path(target) for path, target in parts.items()})

    monkeypatch.setattr(ReleasedSource, "_run_fetch", run)


@pytest.fixture
def service(repository: Repository, tmp_path: Path) -> Iterator[Running]:
    with running(source(repository, tmp_path / "fetched")) as found:
        yield found


def about(service: Running) -> Any:
    return service.client.get("/info").json()


@pytest.mark.usefixtures("fetched_here")
def test_the_release_in_use_answers_and_a_rollback_fetches_nothing(
    repository: Repository, service: Running, two_releases: list[Path]
) -> None:
    names = [open_release(FolderSource(folder)).name for folder in two_releases]
    releases = service.service.releases
    assert service.search(query=QUERY)["release"] == names[0]
    found = about(service)
    assert {found[key] for key in ("version", "release")} == {"v1.0.0", names[0]}
    assert found["figures"] == FIGURES and found["verdict"] is None, "the first release was compared with none"
    repository.step("v1.1.0")
    assert releases.look() and service.search(query=QUERY)["release"] == names[1]
    found = about(service)
    assert found["version"] == "v1.1.0" and found["repository"] == repository.address
    assert found["commit"] == Git(repository.work).commit_of("retriever@v1.1.0")
    assert found["figures"] == FIGURES and found["verdict"] == VERDICT | {"randomisation_p": None}
    repository.step("v1.0.0")
    with repository.without_data():
        assert releases.look()
    assert service.search(query=QUERY)["release"] == names[0]
    assert not releases.look() and releases.behind == 0


def test_a_failed_fetch_leaves_the_old_one_answering_until_it_can_be_fetched(
    repository: Repository, service: Running
) -> None:
    releases = service.service.releases
    before = service.search(query=QUERY)
    lines: list[str] = []
    releases._log = lines.append
    repository.step("v1.1.0")
    with repository.without_data():
        assert not releases.look() and not releases.look()
    assert service.search(query=QUERY) == before
    [line] = lines
    assert before["release"] in line and "v1.1.0 cannot be fetched" in line
    found = about(service)
    assert "v1.1.0 cannot be fetched" in found["unreachable"]["reason"] and found["unreachable"]["at"]
    assert found["behind_seconds"] > 0 and found["version"] == "v1.0.0"
    assert releases.look()
    found = about(service)
    assert found["version"] == "v1.1.0" and found["unreachable"] is None and found["behind_seconds"] == 0


@pytest.mark.usefixtures("fetched_here")
def test_an_unreachable_git_server_changes_nothing(repository: Repository, service: Running, tmp_path: Path) -> None:
    releases = service.service.releases
    before, looked = service.search(query=QUERY), releases.looked
    repository.origin.rename(tmp_path / "away.git")
    assert not releases.look() and releases.looked == looked
    assert service.search(query=QUERY) == before
    assert "cannot read the releases of" in about(service)["unreachable"]["reason"]
    (tmp_path / "away.git").rename(repository.origin)
    assert not releases.look() and about(service)["unreachable"] is None and releases.looked > looked


def damaged(repository: Repository) -> None:
    """Release v1.2.0 with an index that differs from the one in its record."""
    git = Git.of(repository.work)
    champion = read_history(git).find("v1.1.0")
    artifacts = {name: dict(entry) for name, entry in champion.record["artifacts"].items()}
    artifacts["index"]["digest"] = "0" * 64
    git("reset", "--quiet", "--hard", "origin/main")
    publish(git, champion.record | {"artifacts": artifacts}, "minor", "main", "", read_history(git).champion)


@pytest.mark.usefixtures("fetched_here")
def test_data_that_are_not_the_release_s_are_refused(repository: Repository, service: Running, tmp_path: Path) -> None:
    before = service.search(query=QUERY)
    damaged(repository)
    assert not service.service.releases.look() and service.service.releases.refusals == 1
    found = about(service)
    assert "index of v1.2.0 is not what was released" in found["refused"]["reason"]
    assert service.search(query=QUERY) == before
    assert [path.name[:6] for path in (tmp_path / "fetched").iterdir() if path.name[0] != "."] == ["v1.0.0"]


@pytest.mark.usefixtures("fetched_here")
@pytest.mark.parametrize("left_out", [("index",), ()])
def test_what_was_fetched_before_a_kill_is_not_fetched_again(
    left_out: tuple[str, ...], repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large release may not come whole over a bad line; at the end, only the renaming may be left."""
    folder, asked = tmp_path / "fetched", list[str]()
    first = source(repository, folder)
    first.state()
    [place] = {path.parent for path in first.folders().values()}
    first.end()
    partial = place.rename(folder / f".{place.name}.partial")
    for name in left_out:
        (partial / name / "manifest.json").unlink()
    run = ReleasedSource._run_fetch

    def noted(self: ReleasedSource, release: Release, parts: Mapping[str, str]) -> None:
        asked.extend(Path(target).name for target in parts.values())
        run(self, release, parts)

    monkeypatch.setattr(ReleasedSource, "_run_fetch", noted)
    second = source(repository, folder)
    second.state()
    assert all(read_manifest(path) for path in second.folders().values())
    second.end()
    assert asked == list(left_out)


@pytest.mark.usefixtures("fetched_here")
def test_old_releases_leave_the_disk(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillhouse.serving.released_source.KEPT", 1)
    folder = tmp_path / "fetched"
    found = source(repository, folder)
    for version in ("v1.0.0", "v1.1.0"):
        repository.step(version)
        found.state()
        found.folders()
        assert [path.name[:6] for path in folder.iterdir()] == [version]
    found.end()


@pytest.mark.usefixtures("fetched_here")
def test_a_service_that_starts_again_keeps_the_latest_releases(repository: Repository, tmp_path: Path) -> None:
    folder = tmp_path / "fetched"
    found = source(repository, folder)
    for version in ("v1.0.0", "v1.1.0", "v1.0.0"):
        repository.step(version)
        found.state()
        found.folders()
    found.end()
    for number in range(3):  # of earlier days
        old = folder / f"v0.{number}.0-{'0' * 12}"
        old.mkdir()
        os.utime(old, (number, number))
    again = source(repository, folder)
    again.state()
    again.folders()
    again.end()
    names = [path.name[:6] for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)]
    assert names == ["v0.2.0", "v1.1.0", "v1.0.0"], "in the order of their last use"


def test_one_service_uses_a_folder_at_a_time(repository: Repository, tmp_path: Path) -> None:
    first = source(repository, tmp_path / "fetched")
    with pytest.raises(InputError, match="choose another folder"):
        source(repository, tmp_path / "fetched")
    first.end()
    source(repository, tmp_path / "fetched").end()


@pytest.mark.usefixtures("fetched_here")
def test_a_re_ranker_of_another_corpus_is_left_out(repository: Repository, tmp_path: Path) -> None:
    """A refresh that only indexes again keeps the re-ranker that taught the retriever."""
    lines: list[str] = []
    found = source(repository, tmp_path / "fetched", lines)
    found.state()
    [place] = {path.parent for path in found.folders().values()}
    with whole_folder(place / "reranker") as staging:
        write_manifest(staging, "train-reranker", {}, {"corpus": "another"}, {})
    assert "reranker" not in found.folders()
    assert "was trained on another corpus" in lines[-1]
    found.end()


def test_a_named_version_stays_in_use(repository: Repository, tmp_path: Path) -> None:
    found = source(repository, tmp_path / "fetched", version="v1.1.0")
    state = found.state()
    repository.step("v1.1.0")
    repository.step("v1.0.0")
    assert found.state() == state and found.origin()["version"] == "v1.1.0"
    found.end()
    absent = source(repository, tmp_path / "fetched", version="v9.0.0")
    with pytest.raises(InputError, match=r"there is no release 'v9.0.0'; there are: v1.0.0, v1.1.0"):
        absent.state()
    absent.end()


def test_shutdown_does_not_wait_for_a_fetch(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = source(repository, tmp_path / "fetched")
    found.state()
    found._over.set()  # as if the end came just before
    with pytest.raises(Unreachable, match=r"v1.0.0 cannot be fetched"):
        found.folders()
    found.end()


def test_the_command_serves_a_repository(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served = []

    def run(service: Any, listening: Any, grace: float, watch: float, log: Any) -> None:
        served.append((service.releases.current.about()["version"], watch))
        service.releases.end()
        service.batcher.end()

    monkeypatch.setattr("stillhouse.serving.app.run", run)
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "own"))
    command = ["serve", f"git+{repository.address}", "--port", "0"]
    assert cli.main([*command, "--release", "v1.1.0"]) == 0
    assert cli.main([*command, "--fetch-into", str(tmp_path / "there"), "--watch", "5"]) == 0
    assert served == [("v1.1.0", 30.0), ("v1.0.0", 5.0)]
    assert list((tmp_path / "own" / "releases").glob("*/v1.1.0-*")) and list((tmp_path / "there").glob("v1.0.0-*"))
    for words in (
        ["serve", "hdfs://cluster/model"],
        ["serve", "pvc://claim/model"],
        ["serve", ""],
        ["serve", "folder", "--release", "v1.0.0"],
        ["serve", "https://user:sesame@git.example/releases.git"],
    ):
        capsys.readouterr()
        assert cli.main([*words, "--port", "0"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "sesame" not in said


@pytest.mark.parametrize(
    ("place", "repository"),
    [
        ("git+https://git.example/a.git", "https://git.example/a.git"),
        ("git+/srv/a.git", "/srv/a.git"),
        ("ssh://git@git.example/a.git", "ssh://git@git.example/a.git"),
        ("git@git.example:a/b.git", "git@git.example:a/b.git"),
        ("/mnt/models", ""),
        ("in-use", ""),
    ],
)
def test_places_are_folders_or_repositories(place: str, repository: str) -> None:
    assert repository_of(place) == repository


def test_a_fetch_names_what_failed(tmp_path: Path) -> None:
    asked = {"repository": str(tmp_path / "absent"), "commit": "0" * 40, "parts": {"a": str(tmp_path / "a")}}
    done = subprocess.run(
        [sys.executable, "-m", "stillhouse.serving.released_source"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "does not exist" in done.stderr
