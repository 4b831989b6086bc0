"""A push of data is cut off anywhere and repeated, or finds that a file is lost: the remote has all, or it is told."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from repositories import PATHS, dvc, make_artifacts, make_repository, surroundings

from stillhouse.errors import InputError
from stillhouse.versions import data

CUT_OFF = """
import os
import sys
from pathlib import Path

from dvc_data.index import DataIndex

from stillhouse.versions import data

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
"""Ends, as if killed, once DVC has noted the next part of what it is to send for the nth time."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A repository with two artifacts that were recorded and not pushed; its remote is `shelf`, beside it."""
    folder = make_repository(tmp_path / "work", tmp_path / "shelf")
    stages = {name: {"cmd": f"echo {name}", "outs": [path]} for name, path in PATHS.items()}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    (folder / "params.yaml").write_text("{}\n")
    make_artifacts(folder, 5, "one")
    data.record(folder)
    return folder


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_push_that_was_killed_anywhere_is_repeated_whole(workspace: Path) -> None:
    """DVC alone would send what its half-made list names, and no more, from then on."""
    shelf = workspace.with_name("shelf")
    needed, killed = files_below(workspace / ".dvc" / "cache" / "files"), 0
    for moment in range(1, 20):
        shutil.rmtree(shelf, ignore_errors=True)
        done = subprocess.run([sys.executable, "-c", CUT_OFF, str(moment)], cwd=workspace, env=surroundings())
        if done.returncode == 0:
            break
        assert done.returncode == 9
        killed += 1
        data.push(workspace)
        assert needed <= files_below(shelf / "files"), f"killed at note {moment}"
    assert 3 <= killed < 19


@pytest.mark.parametrize("suffix", ["", ".dir"])
def test_a_file_that_the_cache_lost_is_told(suffix: str, workspace: Path) -> None:
    cache = workspace / ".dvc" / "cache" / "files"
    lost = next(path for path in sorted(cache.rglob("*")) if path.is_file() and path.suffix == suffix)
    content = lost.read_bytes()
    lost.unlink()
    with pytest.raises(InputError, match=r"did not reach the remote .*`dvc commit --force`.* Nothing was released"):
        data.push(workspace)
    dvc(workspace, "commit", "--force")
    data.push(workspace)
    assert (workspace.with_name("shelf") / "files" / lost.relative_to(cache)).read_bytes() == content
