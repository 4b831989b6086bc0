"""If a data push is interrupted and repeated, or finds a lost file, the remote gets everything or an error says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repositories import make_artifacts, make_repository, run_context, write_stages

from stillhouse.core.errors import InputError
from stillhouse.releases import data

CUT_OFF = """
import os
import sys
from pathlib import Path

from dvc_data.index import DataIndex

from stillhouse.releases import data

left, commit = int(sys.argv[1]), DataIndex.commit


def cut_off(index):
    global left
    commit(index)
    left -= 1
    if not left:
        os._exit(9)


DataIndex.commit = cut_off
data.push(Path("."))
"""
"""This program exits, as if killed, when DVC saves its list of files to send for the nth time."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a repository with two artifacts that are recorded but not pushed. Its remote is `storage`, next to it."""
    folder = make_repository(tmp_path / "work", tmp_path / "storage")
    write_stages(folder)
    make_artifacts(folder, 5, "one")
    data.record(folder)
    return folder


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_push_that_was_killed_anywhere_is_repeated_whole(workspace: Path) -> None:
    """From then on, DVC alone would send only the files in its incomplete list."""
    storage = workspace.with_name("storage")
    needed, killed = files_below(workspace / ".dvc" / "cache" / "files"), 0
    for moment in range(1, 20):
        shutil.rmtree(storage, ignore_errors=True)
        done = subprocess.run([sys.executable, "-c", CUT_OFF, str(moment)], cwd=workspace, env=run_context())
        if done.returncode == 0:
            break
        assert done.returncode == 9
        killed += 1
        data.push(workspace)
        assert needed <= files_below(storage / "files"), f"killed at note {moment}"
    assert 3 <= killed < 19


@pytest.mark.parametrize("lost", ["a file", "a damaged file", "a list of files", "a file on the remote"])
def test_a_lost_file_is_restored_and_sent(workspace: Path, lost: str) -> None:
    """DVC alone warns at most, and the release would have no data."""
    storage, cache = workspace.with_name("storage") / "files", workspace / ".dvc" / "cache" / "files"
    needed = files_below(cache)
    if lost == "a file on the remote":
        data.push(workspace)
    place = storage if lost == "a file on the remote" else cache
    victim = place / min(name for name in needed if name.endswith(".dir") == (lost == "a list of files"))
    victim.chmod(0o644)
    if lost == "a damaged file":
        victim.write_text("damaged")
    else:
        victim.unlink()
    data.push(workspace)
    assert needed == files_below(cache) and needed <= files_below(storage)


def test_a_remote_that_loses_files_is_refused(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.push(workspace)
    for path in (workspace.with_name("storage") / "files").rglob("*"):
        if path.is_file() and not path.name.endswith(".dir"):
            path.unlink()
    monkeypatch.setattr(data, "_send", lambda repo, lacking: None)
    with pytest.raises(InputError, match=r"the remote does not keep \d+ files of .* Nothing was released"):
        data.push(workspace)
