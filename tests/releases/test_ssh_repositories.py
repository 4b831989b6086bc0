"""A DVC repository over SSH with a real sshd, opened in the environment of the watcher's and the steps' pods."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
import yaml
from repositories import call, commit_data, make_repository

from stillhouse import cli
from stillhouse.core.errors import InputError
from stillhouse.core.remote.dvc_source import fetch, look_up

ROOT = Path(__file__).resolve().parents[2]
SECRET = "/etc/stillhouse-git"


def ssh_of_the_watcher() -> str:
    job = next(
        found
        for found in yaml.safe_load_all((ROOT / "manifests/base/watcher.yaml").read_text())
        if found["kind"] == "CronJob"
    )
    container = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    return next(entry["value"] for entry in container["env"] if entry["name"] == "GIT_SSH_COMMAND")


def ssh_of_the_steps() -> str:
    table = yaml.safe_load((ROOT / "pipelines/placements/cpu.yaml").read_text())
    return str(table["kinds"]["git"]["environment"]["GIT_SSH_COMMAND"])


@pytest.fixture
def served(ssh: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A repository behind sshd, its commit, and a mounted secret with the key `id` and `known_hosts`.

    The home is empty, as in a pod.
    """
    folder = make_repository(tmp_path / "animals", tmp_path / "data")
    commit = commit_data(folder, "articles", {"owl.md": "# owl\n"}, "An owl")
    url = urlsplit(ssh["url"])
    secret, home = tmp_path / "secret", tmp_path / "home"
    secret.mkdir()
    home.mkdir()
    (tmp_path / "user").rename(secret / "id")
    host_key = " ".join((tmp_path / "host.pub").read_text().split()[:2])
    (secret / "known_hosts").write_text(f"[{url.hostname}]:{url.port} {host_key}\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    monkeypatch.setenv("GIT_SSH_COMMAND", ssh_of_the_watcher().replace(SECRET, str(secret)))
    return SimpleNamespace(url=f"ssh://{url.netloc}{tmp_path / 'animals.git'}", commit=commit, secret=secret, home=home)


@pytest.mark.parametrize("revision", ["", "main", "commit"])
def test_a_repository_over_ssh_is_read_with_the_secret_s_key(
    revision: str, served: SimpleNamespace, tmp_path: Path
) -> None:
    revision = served.commit if revision == "commit" else revision
    found = fetch(served.url, revision, {"articles": tmp_path / "articles"})["articles"]
    assert (tmp_path / "articles" / "owl.md").read_text() == "# owl\n"
    assert found.commit == served.commit and look_up(served.url, revision, "articles") == found
    assert not any(served.home.iterdir())


def test_steps_reach_git_as_the_watcher_does() -> None:
    assert ssh_of_the_steps() == ssh_of_the_watcher()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("host", "Host key verification failed"), ("key", "Permission denied"), ("server", "Connection refused")],
)
def test_a_repository_that_ssh_refuses_is_bad_input(wrong: str, says: str, served: SimpleNamespace) -> None:
    url = served.url
    if wrong == "host":
        (served.secret / "known_hosts").write_text(
            (served.secret / "known_hosts").read_text().split()[0] + " " + stranger(served.secret, "host")
        )
    elif wrong == "key":
        stranger(served.secret, "id")
    else:
        url = url.replace(f":{urlsplit(url).port}/", ":1/")
    for revision in ("", served.commit):
        with pytest.raises(InputError, match=rf"cannot read the repository .*{says}.* git_secret names"):
            look_up(url, revision, "articles")


def stranger(folder: Path, name: str) -> str:
    """Replace a key with another one, and return its public part."""
    (folder / name).unlink(missing_ok=True)
    call(folder, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    return (folder / f"{name}.pub").read_text()


def test_a_repository_that_cannot_be_read_stops_only_its_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stillhouse.kubeflow.pipelines.schedules import watch

    def look(asked: watch.Watch, *given: object, **named: object) -> str:
        if asked.name == "one":
            look_up(asked.repo, "", asked.path)
        return f"{asked.name}: unchanged"

    monkeypatch.setattr("stillhouse.kubeflow.pipelines.schedules.cluster.Kubeflow", lambda *given: SimpleNamespace())
    seen = SimpleNamespace(fresh=True, in_flight=False)
    monkeypatch.setattr(watch, "look", lambda *given, **named: (look(*given, **named), seen)[1])
    entry = {"pipeline": "refresh", "releases": "r.git", "repo": "ssh://git@127.0.0.1:1/a.git", "path": "corpus"}
    (tmp_path / "schedules.yaml").write_text(yaml.safe_dump({"watches": {"one": entry, "two": entry}}))
    assert cli.main(["schedule", "watch", str(tmp_path / "schedules.yaml")]) == 2
    said = capsys.readouterr()
    assert "one: not checked, cannot read the repository" in said.out and "Connection refused" in said.out
    assert "namespace(fresh=True" in said.out, "the other is looked at"
