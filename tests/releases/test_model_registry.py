"""Releases in a Model Registry: what is registered, what follows a rollback, and what can go wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from model_registry_server import Refused, RegistryServer, model_registry
from ports import free_port, wait_for
from repositories import ACCEPTED, call, candidate, release

from stillhouse import cli
from stillhouse.artifacts import whole_folder, write_json, write_manifest
from stillhouse.errors import InputError
from stillhouse.monitoring.settings import PIPELINE, RUN
from stillhouse.releases import data, lineage
from stillhouse.releases.git import Git
from stillhouse.releases.model_registry.entry import _figures, model_of, storage_uri
from stillhouse.releases.model_registry.register import register
from stillhouse.releases.model_registry.server import ARCHIVED, LIVE
from stillhouse.releases.model_registry.settings import (
    ADDRESS,
    CLAIM,
    MODEL,
    TOKEN,
    TOKEN_PATH,
    RegistrySettings,
    registry_settings,
)
from stillhouse.releases.refresh import run
from stillhouse.releases.refresh.whole_run import released_figures
from stillhouse.releases.tags import read_history, roll_back
from stillhouse.workflow.graph import graph_of

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
        assert version["description"] == one.record["summary"] and found["rung"] == "test"
        assert "" not in found.values(), "Kubeflow's UI takes an empty property for a label"
        [artifact] = [artifact for artifact in server.artifacts.values() if artifact["of"] == version["id"]]
        assert artifact["storagePath"] == "artifacts/retriever" and artifact["name"] == "retriever"
        assert "modelSourceId" not in artifact, "no run of Kubeflow made it"
    assert found["RR@10"] == 0.6 and found["difference interval"] == "0.0500 to 0.1500" and found["p"] == 0.01
    assert found["previous"] == "retriever@v1.1.0" and found["test queries"] == "source"


def test_the_labels_are_the_registry_ids_of_the_release_in_use(
    server: RegistryServer, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["release", "register", "--folder", str(work), "--labels"]) == 0
    labels = yaml.safe_load(capsys.readouterr().out)
    ids = {name.rpartition("/")[2]: value for name, value in labels.items()}
    [model] = server.models.values()
    [live] = [version for version in server.versions.values() if version["state"] == LIVE]
    assert ids == {"registered-model-id": model["id"], "model-version-id": live["id"]}


def test_the_same_again_changes_nothing(server: RegistryServer, work: Path) -> None:
    registered(work)
    before = (dict(server.models), dict(server.versions), dict(server.artifacts))
    server.requests.clear()
    assert registered(work) == 0
    assert server.requests and not server.writes
    assert (server.models, server.versions, server.artifacts) == before


def test_a_rollback_changes_only_which_version_is_live(server: RegistryServer, work: Path) -> None:
    registered(work)
    versions = {version["name"]: plain(version) for version in server.versions.values()}
    server.requests.clear()
    assert cli.main(["release", "rollback", "--folder", str(work), "--to", "v1.0.0"]) == 0
    assert server.states() == {"v1.0.0": LIVE, "v1.1.0": ARCHIVED, "v1.2.0": ARCHIVED}
    assert [request.split()[0] for request in server.writes] == ["PATCH", "PATCH"]
    assert {version["name"]: plain(version) for version in server.versions.values()} == versions
    assert len(server.artifacts) == 3


def test_the_next_release_becomes_the_live_version(server: RegistryServer, work: Path) -> None:
    registered(work)
    release(work, passages=9, verdict=VERDICT)
    assert registered(work) == 0
    assert server.states() == {"v1.0.0": ARCHIVED, "v1.1.0": ARCHIVED, "v1.2.0": ARCHIVED, "v1.3.0": LIVE}


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


def test_the_promotion_of_a_refresh_is_followed(
    server: RegistryServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command and the pipeline's task both end in `refresh.run.release`, which registers the release."""
    git = Git.of(work)
    champion = read_history(git).champion
    assert champion is not None
    monkeypatch.setattr(run, "write_stages", lambda *given: None)
    monkeypatch.setattr(run, "_candidate", lambda *given: candidate(work, passages=9))
    monkeypatch.setattr(run, "promote", lambda *given, **more: release(work, passages=9, verdict=VERDICT))
    changed = SimpleNamespace(plain=dict)
    decision = run.Decision(run.Plan(run.Rung.INDEX, "little"), changed, "key", "")  # type: ignore[arg-type]
    assert run.release(git, decision, champion, None, "main").kind == "released"
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


def test_some_version_is_always_live(server: RegistryServer, work: Path) -> None:
    """While the release in use changes, a reader finds the new one or the old one."""
    registered(work)
    roll_back(Git.of(work))
    seen: list[int] = []
    server.before = lambda request: seen.append(list(server.states().values()).count(LIVE))
    registered(work)
    assert min(seen) == 1 and max(seen) == 2


@pytest.mark.parametrize("versions", [("v1",), ("v1alpha3",)])
def test_old_and_new_registry_apis_are_supported(versions: tuple[str, ...], server: RegistryServer, work: Path) -> None:
    """Kubeflow's registry of 2025 has only v1alpha3, which will be removed in 2027."""
    server.api_versions = versions
    assert registered(work) == 0
    assert server.states()["v1.2.0"] == LIVE


def test_without_a_registry_no_request_is_sent(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys\nfrom stillhouse import cli\ncli.main(sys.argv[1:])\nassert 'requests' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code, "release", "rollback", "--folder", str(work)],
        env={name: value for name, value in os.environ.items() if name != ADDRESS},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "v1.1.0 is in use again" in done.stdout and "Registry" not in done.stdout + done.stderr
    assert registered(work) == 2
    assert f"no Model Registry is configured; set its address, for example {ADDRESS}=" in capsys.readouterr().err


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


def test_another_server_at_the_address_is_reported(work: Path, tmp_path: Path) -> None:
    """An example is a login page in front of the server, which comes with the status 200."""
    (tmp_path / "api/model_registry/v1").mkdir(parents=True)
    (tmp_path / "api/model_registry/v1/registered_models").write_text("<html>log in</html>")
    port = free_port()
    words = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as pages:
        try:
            wait_for(port)
            with pytest.raises(InputError, match="is its address right"):
                register(Git.of(work), RegistrySettings(f"http://127.0.0.1:{port}"))
        finally:
            pages.terminate()


def test_a_token_is_read_from_its_file(
    server: RegistryServer, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token = "open-sesame"
    (tmp_path / "token").write_text("open-sesame\n")
    monkeypatch.setenv(TOKEN_PATH, str(tmp_path / "token"))
    assert registered(work) == 0
    monkeypatch.setenv(TOKEN_PATH, str(tmp_path / "none"))
    assert registered(work) == 2
    monkeypatch.delenv(TOKEN_PATH)
    assert registered(work) == 2
    monkeypatch.setenv(TOKEN, "open-sesame")
    assert registered(work) == 0
    assert "open-sesame" not in repr(registry_settings())


def test_a_pod_s_own_token_is_sent_over_https_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("of-the-pod")
    monkeypatch.setattr("stillhouse.releases.model_registry.settings.POD_TOKEN", tmp_path / "token")
    assert RegistrySettings("https://registry.example").token() == "of-the-pod"
    assert RegistrySettings("http://registry.example").token() == ""


def test_two_concurrent_registrations_both_succeed(server: RegistryServer, work: Path) -> None:
    """Both find nothing and make the same model: one gets 409 and continues with the existing model."""
    together, waited = threading.Barrier(2), threading.local()

    def before(request: str) -> None:
        if request == "POST registered_models" and not getattr(waited, "done", False):
            waited.done = True
            together.wait(timeout=20)

    server.before = before
    settings, found = RegistrySettings(server.address), []
    others = [threading.Thread(target=lambda: found.append(register(Git.of(work), settings))) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join(timeout=60)
    assert [one.in_use for one in found] == ["v1.2.0", "v1.2.0"]
    assert len(server.models) == 1 and len(server.versions) == 3 and len(server.artifacts) == 3


@pytest.mark.parametrize("at", ["POST model_versions", "POST model_versions/2/artifacts", "PATCH model_versions/3"])
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


def test_a_version_created_by_others_is_left_alone(
    server: RegistryServer, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"name": "place/work", "description": "somebody's"}
    server.answer("POST", "registered_models", {}, other, "")
    model = next(iter(server.models))
    server.answer("POST", "model_versions", {}, {"name": "v1.1.0", "registeredModelId": model}, "")
    server.requests.clear()
    assert registered(work) == 2
    assert "has a version v1.1.0 that is not the release of" in capsys.readouterr().err and not server.writes
    monkeypatch.setenv(MODEL, "search")
    assert registered(work) == 0
    assert [one["name"] for one in server.models.values()] == ["place/work", "search"]


def test_the_run_of_kubeflow_that_made_it_is_named(
    server: RegistryServer, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "namespace").write_text("search\n")
    monkeypatch.setattr(lineage, "NAMESPACE", tmp_path / "namespace")
    monkeypatch.setenv(RUN, "3f2a")
    monkeypatch.setenv(PIPELINE, "refresh")
    release(place / "work")
    monkeypatch.delenv(RUN)  # a laptop may register it later
    assert registered(place / "work") == 0
    [artifact], [version] = server.artifacts.values(), server.versions.values()
    source = {name: value for name, value in artifact.items() if name.startswith("modelSource")}
    assert source == {
        "modelSourceKind": "kfp",
        "modelSourceClass": "pipelinerun",
        "modelSourceGroup": "search",
        "modelSourceId": "3f2a",
        "modelSourceName": "refresh",
    }
    assert plain(version)["Kubeflow run"] == "3f2a"


@pytest.mark.parametrize(
    ("settings", "uri"),
    [
        ({"url": "s3://bucket/search/"}, "s3://bucket/search/files/md5/{}"),
        ({"url": "gcs://bucket"}, "gs://bucket/files/md5/{}"),
        ({"url": "s3://bucket/search", "version_aware": "true"}, "s3://bucket/search/artifacts/retriever"),
        ({"url": "/store/search"}, "pvc://claim/search/files/md5/{}"),
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
    assert storage_uri(Git.of(work), one, ("/store", "claim")) == wanted
    assert digest.endswith(".dir")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://git.example/search/releases.git", "search/releases"),
        ("git@git.example:search/releases.git", "search/releases"),
        ("ssh://git@git.example:2222/search/releases", "search/releases"),
        ("/srv/git/search/releases.git/", "search/releases"),
        ("https://git.example/releases.git", "releases"),
    ],
)
def test_one_repository_is_one_model_however_it_is_reached(address: str, name: str) -> None:
    assert model_of(address) == name


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        ({ADDRESS: "http://r:8080/"}, RegistrySettings("http://r:8080")),
        ({ADDRESS: "https://k.example/api/model_registry/v1alpha3/"}, RegistrySettings("https://k.example")),
        ({ADDRESS: "http://r", CLAIM: "/store/=shop"}, RegistrySettings("http://r", claim=("/store", "shop"))),
        ({ADDRESS: "registry:8080"}, InputError),
        ({ADDRESS: "http://[r"}, InputError),
        ({ADDRESS: "http://r", CLAIM: "store"}, InputError),
    ],
)
def test_settings(environment: dict[str, str], found: Any) -> None:
    if found is InputError:
        with pytest.raises(InputError, match="give a"):
            registry_settings(environment)
    else:
        assert registry_settings(environment) == found
