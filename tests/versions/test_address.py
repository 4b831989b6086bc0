"""Passwords and tokens in addresses: refused wherever an address is read, and never shown."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillhouse import cli
from stillhouse.errors import InputError
from stillhouse.refresh.parameters import Parameters
from stillhouse.refresh.run import Request
from stillhouse.refresh.workspace import open_clone
from stillhouse.steps.ingest import Config
from stillhouse.versions.address import redact, refuse_secret
from stillhouse.versions.dvc_source import look_up, reason
from stillhouse.versions.git import Git, GitFailed

URL = "https://bob:hush@localhost:1/x.git"
REFUSED = (
    URL,
    "https://hush@localhost/x.git",
    "HTTPS://bob:hu@sh@localhost/x",
    "ssh://git:hush@localhost/x",
    "s3://key:hush@bucket/x",
    "bob:hush@localhost:x.git",
)


@pytest.mark.parametrize("address", REFUSED)
def test_a_password_or_token_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(InputError, match=r"repo holds a password or token .*GIT_ASKPASS.*git_secret") as error:
        refuse_secret(address, "repo")
    assert "hu" not in str(error.value)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "https://localhost:8443/x.git",
        "ssh://git@localhost:22/x.git",
        "git@localhost:search/x.git",
        "/home/me/x@y:z@w",
        "file:///home/me@here/x.git",
        "https://localhost/x@v1:2",
        "s3://bucket/search",
    ],
)
def test_other_addresses_are_taken_as_they_are(address: str) -> None:
    refuse_secret(address, "repo")
    assert redact(address) == address


READERS: dict[str, Callable[[str, Path], Any]] = {
    "ingest": lambda url, place: Config(repo=url, source="corpus"),
    "the pipeline, of releases": lambda url, place: Parameters(releases=url),
    "the pipeline, of a corpus": lambda url, place: Parameters(releases="r.git", repo=url),
    "refresh, of releases": lambda url, place: Request(url, place),
    "refresh, of a corpus": lambda url, place: Request("r.git", place, source={"repo": url}),
    "clone": lambda url, place: open_clone(url, "", place),
    "look": lambda url, place: look_up(url, "", "corpus"),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_it_before_anything_is_done(reader: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds a password or token"):
        READERS[reader](URL, tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def test_no_pipeline_is_compiled_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({"ingest": {"repo": URL, "source": "corpus"}}))
    assert cli.main(["pipeline", "compile", "refresh", "--recipe", "recipe.yaml"]) == 2
    said = capsys.readouterr()
    assert "ingest: repo holds a password or token" in said.err and "hush" not in said.out + said.err
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


def test_what_git_says_is_shown_without_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    with pytest.raises(GitFailed, match=r"https://\*\*\*@localhost:1/x\.git") as error:
        Git(tmp_path)("checkout", URL)
    assert "hush" not in str(error.value)


def test_what_dvc_says_is_shown_without_it() -> None:
    assert reason(OSError(f"failed to clone {URL} and ssh://git@localhost/y")) == (
        "failed to clone https://***@localhost:1/x.git and ssh://git@localhost/y"
    )
