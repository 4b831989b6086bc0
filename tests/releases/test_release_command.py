"""What `stillhouse release` says while it works."""

from __future__ import annotations

from pathlib import Path

import pytest
from dvc.repo import Repo
from repositories import release
from silence import slow, talk_soon

from stillhouse import cli
from stillhouse.core.context import QUIET
from stillhouse.core.remote.git import Git
from stillhouse.releases import data
from stillhouse.releases.refresh import run


def test_a_release_command_is_not_silent(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither while it verifies and sends large artifacts, nor while git or the remote is slow."""
    talk_soon(monkeypatch)
    release(place / "work")
    capsys.readouterr()
    monkeypatch.setattr(run, "promote_whole_run", lambda folder, **named: release(folder, weights="two"))
    slow(Repo, "push", monkeypatch)
    for name in ("read_manifest", "fetch"):
        slow(data, name, monkeypatch)
    for name in ("fetch", "push"):
        slow(Git, name, monkeypatch)
    reads = "reading the releases"
    for action, works in {
        "promote": (reads, "verifying the artifacts", "pushing the artifacts", "pushing the release"),
        "list": (reads,),
        f"fetch --only retriever --target {tmp_path / 'fetched'}": (reads, "fetching the artifacts"),
        "rollback": (reads, "putting a release back into use"),
    }.items():
        words = ["release", *action.split(), "--folder", str(place / "work")]
        assert cli.main(words) == 0
        said = capsys.readouterr().err
        for work in works:
            assert f"[release] still {work} (" in said, action
    monkeypatch.setenv(QUIET, "1")
    assert cli.main(["release", "list", "--folder", str(place / "work")]) == 0
    assert not capsys.readouterr().err
