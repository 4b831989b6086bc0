"""The command line of a refresh: what it passes on, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from stillhouse import cli
from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps.places import location_fields
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.releases.refresh import run


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
