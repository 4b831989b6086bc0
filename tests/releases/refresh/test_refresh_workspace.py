"""The clone that a refresh works in: it makes and updates its own, and never uses a user's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from repositories import call

from stillhouse.core.errors import InputError
from stillhouse.core.lock import only_process
from stillhouse.pipeline.workspace import PARAMS
from stillhouse.releases.refresh.run import Request, refresh
from stillhouse.releases.refresh.workspace import open_clone


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


@pytest.mark.parametrize("lock", ["index.lock", "refs/heads/main.lock"])
def test_locks_of_a_killed_git_are_removed(lock: str, releases: Path, tmp_path: Path) -> None:
    folder = tmp_path / "refreshed"
    open_clone(str(releases), "", folder)
    (folder / PARAMS).write_text("ingest: {source: elsewhere}\n")
    (folder / ".git" / lock).touch()
    open_clone(str(releases), "", folder)
    assert (folder / PARAMS).read_text() == "ingest: {}\n"


def test_a_second_refresh_of_one_folder_is_refused(releases: Path, tmp_path: Path) -> None:
    folder = tmp_path / "refreshed"
    with only_process(folder), pytest.raises(InputError, match=r"another process is writing .*refreshed; wait"):
        refresh(Request(str(releases), folder))


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
