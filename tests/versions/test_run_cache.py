"""DVC's run cache between checkouts: a step that was done anywhere is not done again, unless something changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from repositories import call, dvc

from stillhouse.corpus.store import Corpus
from stillhouse.surfaces.workspace import make_workspace
from stillhouse.versions.environment import LIBRARIES, describe_environment


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace that ran `ingest` and pushed what it made, with the run cache, to a folder."""
    place = tmp_path_factory.mktemp("run-cache")
    make_workspace(place / "first", None, "micro")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_NO_ANALYTICS", "1")
        dvc(place / "first", "remote", "add", "--default", "shelf", str(place / "shelf"))
    assert repro(place / "first") == (["ingest"], [])
    call(place / "first", "dvc", "push", "--run-cache", "--quiet")
    return place / "first"


def repro(folder: Path, **environment: str) -> tuple[list[str], list[str]]:
    """Stages that `dvc repro --pull ingest` ran, and those that it restored, but for `environment`."""
    said = call(folder, "dvc", "repro", "--pull", "ingest", STILLHOUSE_QUIET="1", **environment)
    ran = [name for name in re.findall("^Running stage '(.*)'", said, re.MULTILINE) if name != "environment"]
    return ran, re.findall("^Stage '(.*)' is cached", said, re.MULTILINE)


def checkout(first: Path, folder: Path) -> Path:
    """A fresh checkout: the recipe and the stages, no data, no cache, no dvc.lock."""
    (folder / ".dvc").mkdir(parents=True)
    for name in ("dvc.yaml", "params.yaml", ".dvc/config", ".dvcignore"):
        (folder / name).write_bytes((first / name).read_bytes())
    return folder


def test_an_empty_checkout_restores_a_step(first: Path, tmp_path: Path) -> None:
    folder = checkout(first, tmp_path / "second")
    assert repro(folder) == ([], ["ingest"])
    name = "artifacts/ingest/corpus"
    assert Corpus.open(folder / name).passage_count > 0
    assert (folder / name / "manifest.json").read_bytes() == (first / name / "manifest.json").read_bytes()


def test_a_changed_parameter_is_never_taken_for_unchanged(first: Path, tmp_path: Path) -> None:
    folder = checkout(first, tmp_path / "second")
    content = yaml.safe_load((folder / "params.yaml").read_text())
    content["ingest"]["seed"] = 7
    (folder / "params.yaml").write_text(yaml.safe_dump(content))
    assert repro(folder) == (["ingest"], [])


def test_a_changed_library_is_never_taken_for_unchanged(first: Path, tmp_path: Path) -> None:
    """Another version of NumPy, as the installed packages say: found before the real one's record."""
    record = tmp_path / "packages" / "numpy-99.0.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 99.0.0\n")
    path = os.pathsep.join([str(record.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    folder = checkout(first, tmp_path / "second")
    assert repro(folder, PYTHONPATH=path) == (["ingest"], [])
    assert json.loads((folder / "artifacts" / "environment.json").read_text())["libraries"]["numpy"] == "99.0.0"


def test_changed_code_is_another_environment(tmp_path: Path) -> None:
    """A copy of the package in which one line of one step was added; a line of a surface changes nothing."""
    import shutil

    import stillhouse

    shutil.copytree(Path(stillhouse.__file__).parent, tmp_path / "stillhouse")
    words = [sys.executable, "-m", "stillhouse.cli", "environment", str(tmp_path / "environment.json")]

    def code() -> str:
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        subprocess.run(words, check=True, env=environment, cwd=tmp_path)
        return json.loads((tmp_path / "environment.json").read_text())["code"]

    with (tmp_path / "stillhouse" / "surfaces" / "new_command.py").open("a") as file:
        file.write("# more\n")
    assert code() == describe_environment()["code"]
    with (tmp_path / "stillhouse" / "steps" / "ingest.py").open("a") as file:
        file.write("# more\n")
    assert code() != describe_environment()["code"]


def test_every_library_that_computes_is_installed_and_told() -> None:
    found = describe_environment()["libraries"]
    assert list(found) == list(LIBRARIES) and all(found.values()), found
    assert "+" not in found["torch"], "a build's own mark would keep a laptop's steps from a GPU's"
