"""Releases in a Model Registry: what is registered, what follows a rollback, and what can go wrong."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from model_registry_server import Refused, RegistryServer, model_registry
from ports import free_port
from repositories import ACCEPTED, call, release

from stillhouse import cli
from stillhouse.core.artifacts import whole_folder, write_json, write_manifest
from stillhouse.pipeline.graph import graph_of
from stillhouse.releases import data
from stillhouse.releases.git import Git
from stillhouse.releases.model_registry.entry import _figures, storage_uri
from stillhouse.releases.model_registry.server import ARCHIVED, LIVE
from stillhouse.releases.model_registry.settings import ADDRESS, TOKEN_PATH
from stillhouse.releases.refresh.whole_run import released_figures
from stillhouse.releases.tags import read_history

pytestmark = pytest.mark.usefixtures("git_alone")
VERDICT = ACCEPTED | {
    "measure": "RR@10",
    "champion": 0.5,
    "challenger": 0.6,
    "difference": 0.1,
    "low": 0.05,
    "high": 0.15,
    "randomisation_p": 0.01,
    "labels": "source",
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    with model_registry() as served:
        monkeypatch.setenv(ADDRESS, served.address)
        yield served


@pytest.fixture(scope="module")
def three(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with the releases v1.0.0, v1.1.0 and v1.2.0, the last in use."""
    place = copied(template, tmp_path_factory.mktemp("three") / "place")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("push", "record"):
            patch.setattr(data, name, lambda folder: None)
        for number in range(3):
            release(place / "work", passages=3 + number, verdict=VERDICT)
    return place


@pytest.fixture
def work(three: Path, tmp_path: Path) -> Path:
    return copied(three, tmp_path / "place") / "work"


def copied(place: Path, to: Path) -> Path:
    shutil.copytree(place, to, symlinks=True)
    call(to / "work", "git", "remote", "set-url", "origin", str(to / "work.git"))
    return to


def registered(work: Path, *flags: str) -> int:
    return cli.main(["release", "register", "--folder", str(work), *flags])


def plain(version: dict[str, Any]) -> dict[str, Any]:
    """A version's properties without their types."""
    return {
        name: next(part for key, part in value.items() if key.endswith("_value"))
        for name, value in version["customProperties"].items()
    }


def test_every_release_is_a_version_and_the_one_in_use_alone_is_live(server: RegistryServer, work: Path) -> None:
    assert registered(work) == 0
    [model] = server.models.values()
    assert model["name"] == "place/work"
    assert server.states() == {"v1.0.0": ARCHIVED, "v1.1.0": ARCHIVED, "v1.2.0": LIVE}
    git = Git.of(work)
    for one in read_history(git).releases:
        [version] = [version for version in server.versions.values() if version["name"] == one.name]
        found, artifacts = plain(version), one.record["artifacts"]
        assert found["commit"] == call(work, "git", "rev-parse", f"{one.tag}^{{commit}}").strip()
        assert {found["corpus digest"], found["retriever digest"]} == {one["digest"] for one in artifacts.values()}
        assert version["description"] == one.record["summary"] and found["level"] == "test"
        assert "" not in found.values(), "Kubeflow's UI takes an empty property for a label"
        [artifact] = [artifact for artifact in server.artifacts.values() if artifact["of"] == version["id"]]
        assert artifact["storagePath"] == "artifacts/retriever" and artifact["name"] == "retriever"
        assert "modelSourceId" not in artifact, "no run of Kubeflow made it"
    assert found["RR@10"] == 0.6 and found["difference interval"] == "0.0500 to 0.1500" and found["p"] == 0.01
    assert found["previous"] == "retriever@v1.1.0" and found["test queries"] == "source"


def test_a_rollback_changes_only_which_version_is_live(server: RegistryServer, work: Path) -> None:
    registered(work)
    versions = {version["name"]: plain(version) for version in server.versions.values()}
    server.requests.clear()
    assert cli.main(["release", "rollback", "--folder", str(work), "--to", "v1.0.0"]) == 0
    assert server.states() == {"v1.0.0": LIVE, "v1.1.0": ARCHIVED, "v1.2.0": ARCHIVED}
    assert [request.split()[0] for request in server.writes] == ["PATCH", "PATCH"]
    assert {version["name"]: plain(version) for version in server.versions.values()} == versions
    assert len(server.artifacts) == 3


def test_a_promotion_registers_what_it_released(
    server: RegistryServer, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command registers it. A repetition releases nothing, but registers what an earlier one could not."""

    def promoted(folder: Path, **more: object) -> Any:
        return release(folder, passages=9, verdict=VERDICT)

    monkeypatch.setattr("stillhouse.releases.refresh.whole_run.promote_whole_run", promoted)
    server.token = "not this one"
    assert cli.main(["release", "promote", "--folder", str(work)]) == 0
    said = capsys.readouterr()
    assert "released v1.3.0" in said.out and "needs a token" in said.err and not server.models
    server.token = ""
    assert cli.main(["release", "promote", "--folder", str(work)]) == 0
    assert "already released v1.3.0" in capsys.readouterr().out
    assert server.states()["v1.3.0"] == LIVE and len(server.versions) == 4


def test_the_figures_are_those_of_the_released_system(tmp_path: Path) -> None:
    whole = graph_of({})
    folder = tmp_path / "evaluate" / "evaluation"
    assert released_figures(whole, "best_run/run", tmp_path) == {}
    with whole_folder(folder) as staging:
        write_json(staging / "metrics.json", {"bm25": {"RR@10": 0.1}, "best": {"RR@10": 0.5, "R@50": 0.9}})
        write_json(staging / "intervals.json", {"bm25": {"RR@10": [0, 1]}, "best": {"RR@10": [0.4, 0.6]}})
        write_manifest(staging, "evaluate", {}, {}, {"labels": "synthetic"})
    found = released_figures(whole, "best_run/run", tmp_path)
    assert found == {"measures": {"RR@10": [0.5, [0.4, 0.6]], "R@50": [0.9, None]}, "labels": "synthetic"}
    record = {"artifacts": {"retriever": {"path": "r", "dvc": "ab.dir", "digest": "d"}}, "figures": found}
    assert _figures(record) == {
        "RR@10": 0.5,
        "RR@10 interval": "0.4000 to 0.6000",
        "R@50": 0.9,
        "test queries": "synthetic",
    }


def no_answer(server: RegistryServer, patch: pytest.MonkeyPatch) -> None:
    patch.setenv(ADDRESS, f"http://127.0.0.1:{free_port()}")


def wants_a_token(server: RegistryServer, patch: pytest.MonkeyPatch) -> None:
    server.token = "open sesame"


def fails(server: RegistryServer, patch: pytest.MonkeyPatch) -> None:
    def before(request: str) -> None:
        raise Refused(503, "no database")

    server.before = before


def is_elsewhere(server: RegistryServer, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(server, "api_versions", ())


def holds_a_secret(server: RegistryServer, patch: pytest.MonkeyPatch) -> None:
    patch.setenv(ADDRESS, "http://bob:hunter2@registry.example")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (no_answer, "does not answer"),
        (wants_a_token, f"refuses (401): no user identity; it needs a token: write one to a file and set {TOKEN_PATH}"),
        (fails, "refuses (503): no database"),
        (is_elsewhere, "refuses (404)"),
        (holds_a_secret, "holds a password or token"),
    ],
)
def test_a_rollback_succeeds_even_if_the_registry_fails(
    what: Callable[[RegistryServer, pytest.MonkeyPatch], None],
    said: str,
    server: RegistryServer,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch:
        what(server, patch)
        assert cli.main(["release", "rollback", "--folder", str(work)]) == 0
        logged = capsys.readouterr()
        assert "v1.1.0 is in use again" in logged.out
        assert said in logged.err and "Run `stillhouse release register` to register it later" in logged.err
        assert "hunter2" not in logged.err
        assert registered(work) == 2 and said in capsys.readouterr().err
    server.token, server.before = "", lambda request: None
    assert registered(work) == 0
    assert server.states() == {"v1.0.0": ARCHIVED, "v1.1.0": LIVE, "v1.2.0": ARCHIVED}


@pytest.mark.parametrize("at", ["POST model_versions/2/artifacts"])
def test_an_interrupted_registration_is_completed(at: str, server: RegistryServer, work: Path) -> None:
    """It is killed after the model, after a version without its artifact, or before unused versions are archived."""
    reached, go_on = threading.Event(), threading.Event()

    def before(request: str) -> None:
        if request == at:
            reached.set()
            go_on.wait(timeout=60)
            raise Refused(503, "too late")

    server.before = before
    words = [sys.executable, "-m", "stillhouse.cli", "release", "register", "--folder", str(work)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert reached.wait(timeout=60)
        process.send_signal(signal.SIGKILL)
    go_on.set()
    assert len(server.models) == 1
    server.before = lambda request: None
    assert registered(work) == 0
    assert server.states() == {"v1.0.0": ARCHIVED, "v1.1.0": ARCHIVED, "v1.2.0": LIVE}
    assert len(server.models) == 1
    assert sorted(one["of"] for one in server.artifacts.values()) == sorted(server.versions)


@pytest.mark.parametrize(
    ("settings", "uri"),
    [
        ({"url": "s3://bucket/search/"}, "s3://bucket/search/files/md5/{}"),
        ({"url": "gcs://bucket"}, "gs://bucket/files/md5/{}"),
        ({"url": "s3://bucket/search", "version_aware": "true"}, "s3://bucket/search/artifacts/retriever"),
        ({"url": "/storehouse"}, "file:///storehouse/files/md5/{}"),
        ({"url": "ssh://me:secret@host/data"}, "ssh://***@host/data/files/md5/{}"),
        ({"url": "../shelf"}, ""),  # a relative path means something else elsewhere
    ],
)
def test_the_address_in_storage_is_that_of_the_release(settings: dict[str, str], uri: str, work: Path) -> None:
    lines = [
        "[core]",
        "remote = shelf",
        "['remote \"shelf\"']",
        *(f"{name} = {value}" for name, value in settings.items()),
    ]
    (work / ".dvc" / "config").write_text("\n".join(lines) + "\n")
    call(work, "git", "commit", "--quiet", "--all", "--message", "Another remote")
    call(work, "git", "push", "--quiet", "origin", "HEAD:main")
    one = release(work, passages=20, verdict=VERDICT).release
    digest = one.record["artifacts"]["retriever"]["dvc"]
    wanted = uri.format(f"{digest[:2]}/{digest[2:]}")
    assert storage_uri(Git.of(work), one) == wanted
    assert digest.endswith(".dir")
