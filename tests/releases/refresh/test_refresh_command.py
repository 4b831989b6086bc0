"""The settings that the command line of a refresh passes on."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from stillhouse import cli
from stillhouse.errors import InputError
from stillhouse.releases.refresh import run
from stillhouse.steps.registry import find_step
from stillhouse.workflow.recipes import location_fields
from stillhouse.workflow.step_command import flag_of


@pytest.mark.parametrize("name", ["train_queries", "documents"])
def test_added_folders_are_found_from_the_folder_of_the_refresh(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe is read in a clone, where a relative path would lead elsewhere."""
    asked: list[run.Request] = []

    def refused(request: run.Request, log: object) -> NoReturn:
        asked.append(request)
        raise InputError("no further")

    monkeypatch.setattr(run, "refresh", refused)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["refresh", "releases", flag_of(name), "added"]) == 2
    assert asked[0].source == {name: str(tmp_path / "added")}
    assert asked[0].source.keys() <= set(location_fields(find_step("ingest")))
