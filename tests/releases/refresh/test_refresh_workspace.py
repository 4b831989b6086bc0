"""The clone that a refresh works in: it makes and updates its own, and never uses a user's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from repositories import call

from stillhouse.errors import InputError
from stillhouse.lock import only_process
from stillhouse.releases.refresh.run import Request, refresh
from stillhouse.releases.refresh.workspace import PARAMS, drop_stale, open_clone
from stillhouse.workflow.dvc_file import ENVIRONMENT


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    """Return a bare repository with params.yaml on its branch `main`, next to the clone that pushed it."""
    call(tmp_path, "git", "init", "--quiet", "--bare", "--initial-branch", "main", "releases.git")
    call(tmp_path, "git", "clone", "--quiet", "releases.git", "own")
    (tmp_path / "own" / PARAMS).write_text("ingest: {}\n")
    commit(tmp_path / "own", "Begin")
    call(tmp_path / "own", "git", "push", "--quiet", "origin", "HEAD:main")
    return tmp_path / "releases.git"


def commit(folder: Path, message: str) -> None:
    call(folder, "git", "add", "--all")
    call(folder, "git", "commit", "--quiet", "--message", message)


def test_a_refresh_continues_in_the_folder_of_a_killed_one(releases: Path, tmp_path: Path) -> None:
    folder = tmp_path / "refreshed"
    open_clone(str(releases), "", folder)
    (folder / PARAMS).write_text("ingest: {source: elsewhere}\n")
    (folder / "artifacts").mkdir()
    (tmp_path / "own" / "README.md").write_text("read me")
    commit(tmp_path / "own", "Readme")
    call(tmp_path / "own", "git", "push", "--quiet", "origin", "HEAD:main")
    open_clone(str(releases), "", folder)
    assert (folder / PARAMS).read_text() == "ingest: {}\n"
    assert (folder / "README.md").is_file() and (folder / "artifacts").is_dir()


def test_a_file_that_git_does_not_track_is_not_replaced(releases: Path, tmp_path: Path) -> None:
    folder = tmp_path / "refreshed"
    open_clone(str(releases), "", folder)
    for name in ("notes/ü.md", "release.json"):
        for place in (tmp_path / "own", folder):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(place.name)
    commit(tmp_path / "own", "Notes")
    call(tmp_path / "own", "git", "push", "--quiet", "origin", "HEAD:main")
    with pytest.raises(InputError, match=r"ü\.md is not committed, and the branch main now has a file of that name"):
        open_clone(str(releases), "", folder)
    assert (folder / "notes" / "ü.md").read_text() == "refreshed"
    (folder / "notes" / "ü.md").unlink()
    open_clone(str(releases), "", folder)
    assert (folder / "notes" / "ü.md").read_text() == "own" == (folder / "release.json").read_text()


def test_an_interrupted_clone_is_made_again(releases: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work" / "refreshed"
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text('#!/bin/sh\nfor folder; do :; done\nmkdir -p "$folder/.git/objects"\nkill -9 $PPID\n')
    git.chmod(0o755)
    place = "stillhouse.releases.refresh.workspace"
    program = f"import sys; from {place} import *; open_clone(sys.argv[1], '', Path(sys.argv[2]))"
    words = [sys.executable, "-c", program, str(releases), str(folder)]
    killed = subprocess.run(words, env=os.environ | {"PATH": f"{git.parent}:{os.environ['PATH']}"})
    assert killed.returncode == -signal.SIGKILL and not folder.exists() and any(folder.parent.iterdir())
    open_clone(str(releases), "", folder)
    assert (folder / PARAMS).is_file() and [path.name for path in folder.parent.iterdir()] == ["refreshed"]


@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock", "packed-refs.lock", "refs/heads/main.lock"])
def test_locks_of_a_killed_git_are_removed(lock: str, releases: Path, tmp_path: Path) -> None:
    folder = tmp_path / "refreshed"
    open_clone(str(releases), "", folder)
    (folder / PARAMS).write_text("ingest: {source: elsewhere}\n")
    (folder / ".git" / lock).touch()
    open_clone(str(releases), "", folder)
    assert (folder / PARAMS).read_text() == "ingest: {}\n"


def test_a_truncated_environment_file_counts_as_another_environment(tmp_path: Path) -> None:
    drop_stale(tmp_path)
    whole, kept = (tmp_path / ENVIRONMENT).read_text(), tmp_path / "artifacts" / "kept"
    kept.mkdir()
    drop_stale(tmp_path)
    assert kept.is_dir()
    (tmp_path / ENVIRONMENT).write_text(whole[:-10])
    drop_stale(tmp_path)
    assert not kept.exists() and (tmp_path / ENVIRONMENT).read_text() == whole


def test_a_second_refresh_of_one_folder_is_refused(releases: Path, tmp_path: Path) -> None:
    folder = tmp_path / "refreshed"
    with only_process(folder), pytest.raises(InputError, match=r"another process is writing .*refreshed; wait"):
        refresh(Request(str(releases), folder))


def test_the_current_folder_is_refused(releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match="choose a folder in it with --folder"):
        open_clone(str(releases), "", Path())


@pytest.mark.parametrize("committed", [False, True])
def test_somebody_s_own_clone_is_refused(committed: bool, releases: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / PARAMS).write_text("ingest: {source: mine}\n")
    if committed:
        commit(own, "Mine")
    head = call(own, "git", "rev-parse", "HEAD")
    call(own, "git", "remote", "set-url", "origin", str(releases))
    with pytest.raises(InputError, match=r"own was not made by a refresh.*choose another one with --folder"):
        open_clone(str(releases), "", own)
    assert (own / PARAMS).read_text() == "ingest: {source: mine}\n" and call(own, "git", "rev-parse", "HEAD") == head


def test_a_folder_inside_somebody_s_own_clone_is_refused(releases: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "refreshed").mkdir()
    (own / "refreshed" / "refresh.json").write_text("{}")
    (own / PARAMS).write_text("ingest: {source: mine}\n")
    call(own, "git", "remote", "set-url", "origin", str(releases))
    with pytest.raises(InputError, match="was not made by a refresh"):
        open_clone(str(releases), "", own / "refreshed")
    assert (own / PARAMS).read_text() == "ingest: {source: mine}\n"


def test_commits_that_were_never_pushed_are_not_dropped(releases: Path, tmp_path: Path) -> None:
    folder = tmp_path / "refreshed"
    open_clone(str(releases), "", folder)
    (folder / PARAMS).write_text("ingest: {source: mine}\n")
    commit(folder, "Mine")
    with pytest.raises(
        InputError, match=r"holds commits that were never pushed .*; push them, or choose another folder"
    ):
        open_clone(str(releases), "", folder)
    call(folder, "git", "checkout", "--quiet", "--detach")
    with pytest.raises(InputError, match="not on a branch"):
        open_clone(str(releases), "", folder)
    with pytest.raises(InputError, match="never pushed"):
        open_clone(str(releases), "main", folder)
    call(folder, "git", "push", "--quiet", "origin", "HEAD:main")
    open_clone(str(releases), "main", folder)
    assert (folder / PARAMS).read_text() == "ingest: {source: mine}\n"


def test_a_clone_of_another_repository_is_refused(releases: Path, tmp_path: Path) -> None:
    open_clone(str(releases), "", tmp_path / "refreshed")
    shutil.copytree(releases, tmp_path / "other.git")
    with pytest.raises(InputError, match=r"is a clone of .*releases\.git; choose another folder"):
        open_clone(str(tmp_path / "other.git"), "", tmp_path / "refreshed")
