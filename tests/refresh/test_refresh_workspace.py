"""The clone that a refresh works in: made by itself, brought up to date, and never somebody's own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "versions"))
from repositories import call

from stillhouse.errors import InputError
from stillhouse.refresh.workspace import PARAMS, open_clone


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    """A bare repository with params.yaml on its branch `main`, and the clone that it was pushed from beside it."""
    call(tmp_path, "git", "init", "--quiet", "--bare", "--initial-branch", "main", "releases.git")
    call(tmp_path, "git", "clone", "--quiet", "releases.git", "own")
    (tmp_path / "own" / PARAMS).write_text("ingest: {}\n")
    commit(tmp_path / "own", "Begin")
    call(tmp_path / "own", "git", "push", "--quiet", "origin", "HEAD:main")
    return tmp_path / "releases.git"


def commit(folder: Path, message: str) -> None:
    call(folder, "git", "add", "--all")
    call(folder, "git", "commit", "--quiet", "--message", message)


def test_what_a_killed_refresh_left_is_its_own(releases: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("committed", [False, True])
def test_somebody_s_own_clone_is_refused(committed: bool, releases: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / PARAMS).write_text("ingest: {source: mine}\n")
    if committed:
        commit(own, "Mine")
    head = call(own, "git", "rev-parse", "HEAD")
    call(own, "git", "remote", "set-url", "origin", str(releases))
    with pytest.raises(InputError, match=r"own was not made by a refresh.*name another by --folder"):
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
    with pytest.raises(InputError, match=r"holds commits that were never pushed .*; push them, or name another folder"):
        open_clone(str(releases), "", folder)
    call(folder, "git", "checkout", "--quiet", "--detach")
    with pytest.raises(InputError, match="on no branch"):
        open_clone(str(releases), "", folder)
    with pytest.raises(InputError, match="never pushed"):
        open_clone(str(releases), "main", folder)
    call(folder, "git", "push", "--quiet", "origin", "HEAD:main")
    open_clone(str(releases), "main", folder)
    assert (folder / PARAMS).read_text() == "ingest: {source: mine}\n"


def test_a_clone_of_another_repository_is_refused(releases: Path, tmp_path: Path) -> None:
    open_clone(str(releases), "", tmp_path / "refreshed")
    shutil.copytree(releases, tmp_path / "other.git")
    with pytest.raises(InputError, match=r"is a clone of .*releases\.git; name another folder"):
        open_clone(str(tmp_path / "other.git"), "", tmp_path / "refreshed")
