"""A refresh that is killed at random moments and run again releases once, with the result of an undisturbed refresh."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from release_repositories import LIGHT, Source, first_release
from repositories import call, run_context

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "survival"))
from kills import land_kills

from stillhouse.core.remote.git import Git
from stillhouse.releases.data import fetch_release
from stillhouse.releases.tags import Release, read_history

pytestmark = pytest.mark.slow


def begin(releases: Path, revision: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a refresh in its own process group, so that all its processes can be killed together."""
    program = str(Path(sys.executable).with_name("stillhouse"))
    words = [program, "refresh", str(releases), "--folder", str(folder), "--quiet"]
    words += ["--revision", revision, "--fine-tune-above", "0.2", "--pretrain-above", "0.7"]
    work = run_context(STILLHOUSE_WORK=str(folder.with_name(f"{folder.name}.work")))
    return subprocess.Popen(words, env=work, stdout=subprocess.DEVNULL, start_new_session=True)


def releases_of(releases: Path, clone: Path) -> list[Release]:
    """All releases of a bare repository, newest last, read from a fresh clone."""
    shutil.rmtree(clone, ignore_errors=True)
    call(clone.parent, "git", "clone", "--quiet", str(releases), str(clone))
    return read_history(Git.of(clone)).releases


def digests(release: Release) -> dict[str, str]:
    return {name: entry["digest"] for name, entry in release.record["artifacts"].items()}


@pytest.mark.long
def test_a_killed_refresh_releases_once_and_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "first.work"))
    source = Source(tmp_path / "source", tmp_path / "source-storage")
    first_release(tmp_path / "work", source, tmp_path / "storage", LIGHT)
    releases, calm = tmp_path / "work.git", tmp_path / "calm.git"
    shutil.copytree(releases, calm)
    shutil.copytree(tmp_path / "storage", tmp_path / "calm-storage")
    little = source.rewrite(1, "as was found later")

    started = time.monotonic()
    assert begin(calm, little, tmp_path / "calm").wait() == 0
    seconds = time.monotonic() - started
    [_, expected] = releases_of(calm, tmp_path / "look")
    # Both refreshes push to one data remote, so it is reset to its state before the calm refresh.
    shutil.rmtree(tmp_path / "storage")
    (tmp_path / "calm-storage").rename(tmp_path / "storage")

    def kill(moment: float) -> bool:
        process = begin(releases, little, tmp_path / "killed")
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        found = releases_of(releases, tmp_path / "look")
        assert [each.name for each in found] in (["v1.0.0"], ["v1.0.0", "v1.0.1"])
        fetch_release(Git.of(tmp_path / "look"), found[-1], tmp_path / "fetched" / found[-1].name)
        return process.returncode == -signal.SIGKILL

    land_kills("refresh", seconds, kill)
    assert begin(releases, little, tmp_path / "killed").wait() == 0
    found = releases_of(releases, tmp_path / "look")
    assert [each.name for each in found] == ["v1.0.0", "v1.0.1"], "released once"
    assert digests(found[-1]) == digests(expected)
    places = fetch_release(Git.of(tmp_path / "look"), found[-1], tmp_path / "whole")
    assert places.keys() == {*LIGHT, "hybrid"}
