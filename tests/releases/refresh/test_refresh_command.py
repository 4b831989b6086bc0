"""The command line of a refresh: what it passes on, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from release_repositories import LIGHT, Source, first_release
from silence import slow, talk_soon

from stillhouse import cli
from stillhouse.corpus import difference
from stillhouse.errors import InputError
from stillhouse.releases.git import Git
from stillhouse.releases.refresh import run, workspace
from stillhouse.steps.places import location_fields
from stillhouse.steps.registry import find_step


def test_added_queries_are_found_from_the_folder_of_the_refresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe is read in a clone, where a relative path would lead elsewhere."""
    asked: list[run.Request] = []

    def refused(request: run.Request, log: object) -> NoReturn:
        asked.append(request)
        raise InputError("no further")

    monkeypatch.setattr(run, "refresh", refused)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["refresh", "releases", "--train-queries", "added"]) == 2
    assert asked[0].source == {"train_queries": str(tmp_path / "added")}
    assert asked[0].source.keys() <= set(location_fields(find_step("ingest")))


def test_a_refresh_is_not_silent_between_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither while it brings the champion from large repositories, nor while it compares large corpora."""
    source = Source(tmp_path / "source", tmp_path / "source-shelf")
    first_release(tmp_path / "work", source, tmp_path / "shelf", LIGHT)
    talk_soon(monkeypatch)
    slow(Git, "fetch", monkeypatch)
    slow(workspace, "fetch_release", monkeypatch)
    slow(difference, "difference", monkeypatch)
    words = ["refresh", str(tmp_path / "work.git"), "--folder", str(tmp_path / "refreshed"), "--plan-only"]
    assert cli.main(words) == 0
    said = capsys.readouterr().err
    for work in (
        "reading the releases",
        "bringing the artifacts of the champion",
        "comparing the corpora",
    ):
        assert f"[refresh] still {work} (" in said
    assert cli.main([*words, "--quiet"]) == 0
    assert not capsys.readouterr().err
