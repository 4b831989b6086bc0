"""If a data push is interrupted and repeated, or finds a lost file, the remote gets everything or an error says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    """Return a repository with two artifacts that are recorded but not pushed. Its remote is `shelf`, next to it."""
    folder = make_repository(tmp_path / "work", tmp_path / "shelf")
    write_stages(folder)
    make_artifacts(folder, 5, "one")
    data.record(folder)
    return folder


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_push_that_was_killed_anywhere_is_repeated_whole(workspace: Path) -> None:
    """From then on, DVC alone would send only the files in its incomplete list."""
    shelf = workspace.with_name("shelf")
    needed, killed = files_below(workspace / ".dvc" / "cache" / "files"), 0
    for moment in range(1, 20):
        shutil.rmtree(shelf, ignore_errors=True)
        done = subprocess.run([sys.executable, "-c", CUT_OFF, str(moment)], cwd=workspace, env=run_context())
        if done.returncode == 0:
            break
        assert done.returncode == 9
        killed += 1
        data.push(workspace)
        assert needed <= files_below(shelf / "files"), f"killed at note {moment}"
    assert 3 <= killed < 19


def in_cache(workspace: Path) -> Path:
    return workspace / ".dvc" / "cache" / "files"


def on_shelf(workspace: Path) -> Path:
    return workspace.with_name("shelf") / "files"


def first_file(folder: Path, suffix: str) -> Path:
    """Return the first object of a cache or remote, or with the suffix `.dir` the first list of a folder."""
    return next(path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix == suffix)


def flip(path: Path) -> None:
    """Flip a bit, but keep the size, mode and time that DVC checks."""
    content, about = path.read_bytes(), path.stat()
    path.chmod(0o644)
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    path.chmod(about.st_mode)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


HARMS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], None]]] = {
    "lost by the cache": (in_cache, Path.unlink),
    "damaged in the cache": (in_cache, flip),
    "lost by the remote": (on_shelf, Path.unlink),
    "cut short on the remote": (on_shelf, lambda path: path.chmod(0o644) or path.write_bytes(path.read_bytes()[:-1])),
}


@pytest.mark.parametrize("suffix", ["", ".dir"])
@pytest.mark.parametrize("harm", HARMS)
def test_lost_or_damaged_data_is_pushed_again(harm: str, suffix: str, workspace: Path) -> None:
    """DVC trusts the list of a folder on its remote, and the mode of a file in its cache."""
    place, damage = HARMS[harm]
    whole = {path.name: path.read_bytes() for path in in_cache(workspace).rglob("*") if path.is_file()}
    if place is on_shelf:
        data.push(workspace)
    damage(first_file(place(workspace), suffix))
    data.push(workspace)
    assert {path.name: path.read_bytes() for path in on_shelf(workspace).rglob("*") if path.is_file()} == whole
    assert {path.name: path.read_bytes() for path in in_cache(workspace).rglob("*") if path.is_file()} == whole


@pytest.mark.parametrize("work", [data.record, data.push])
def test_an_empty_lock_file_of_dvc_does_not_stop_a_push(work: Callable[[Path], None], workspace: Path) -> None:
    note = workspace / ".dvc" / "tmp" / "rwlock"
    assert note.is_file(), "DVC keeps it elsewhere by now"
    note.write_text("")
    work(workspace)


def test_a_remote_that_keeps_nothing_is_reported(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dvc_data.hashfile.db import HashFileDB

    add = HashFileDB.add

    def forget(self: HashFileDB, *words: Any, **named: Any) -> int:
        done = add(self, *words, **named)
        for path in on_shelf(workspace).rglob("*"):
            if path.suffix == ".dir":
                path.unlink()
        return done

    monkeypatch.setattr(HashFileDB, "add", forget)
    with pytest.raises(InputError, match=r"the remote does not keep 2 files of .*retriever of .* Nothing was released"):
        data.push(workspace)
