"""DVC's run cache between checkouts: a step that ran anywhere does not run again, unless something changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from repositories import repro

from stillhouse import environment
from stillhouse.corpus.store import Corpus
from stillhouse.environment import LIBRARIES, describe_environment


def checkout(laptop: Path, folder: Path) -> Path:
    """A fresh checkout: the recipe and the stages, no data, no cache, no dvc.lock."""
    (folder / ".dvc").mkdir(parents=True)
    for name in ("dvc.yaml", "params.yaml", ".dvc/config", ".dvcignore"):
        (folder / name).write_bytes((laptop / name).read_bytes())
    return folder


def test_an_empty_checkout_restores_a_step(laptop: Path, tmp_path: Path) -> None:
    folder = checkout(laptop, tmp_path / "second")
    assert repro(folder, "ingest") == ([], ["ingest"])
    name = "artifacts/ingest/corpus"
    assert Corpus.open(folder / name).passage_count > 0
    assert (folder / name / "manifest.json").read_bytes() == (laptop / name / "manifest.json").read_bytes()


def test_a_changed_parameter_is_always_noticed(laptop: Path, tmp_path: Path) -> None:
    folder = checkout(laptop, tmp_path / "second")
    content = yaml.safe_load((folder / "params.yaml").read_text())
    content["ingest"]["seed"] = 7
    (folder / "params.yaml").write_text(yaml.safe_dump(content))
    assert repro(folder, "ingest") == (["ingest"], [])


def test_a_changed_library_is_always_noticed(laptop: Path, tmp_path: Path) -> None:
    """The package metadata of another NumPy version is found before the real one."""
    record = tmp_path / "packages" / "numpy-99.0.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 99.0.0\n")
    path = os.pathsep.join([str(record.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    folder = checkout(laptop, tmp_path / "second")
    assert repro(folder, "ingest", PYTHONPATH=path) == (["ingest"], [])
    assert json.loads((folder / "artifacts" / "environment.json").read_text())["libraries"]["numpy"] == "99.0.0"


def test_changed_code_is_another_environment(tmp_path: Path) -> None:
    """A new line in a step or a page changes the digest of the code; a new line in an interface does not."""
    import shutil

    import stillhouse

    shutil.copytree(Path(stillhouse.__file__).parent, tmp_path / "stillhouse")
    words = [sys.executable, "-m", "stillhouse.cli", "environment", str(tmp_path / "environment.json")]

    def code() -> str:
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        subprocess.run(words, check=True, env=environment, cwd=tmp_path)
        return json.loads((tmp_path / "environment.json").read_text())["code"]

    with (tmp_path / "stillhouse" / "workflow" / "new_workspace.py").open("a") as file:
        file.write("# more\n")
    assert code() == describe_environment()["code"]
    found = {describe_environment()["code"]}
    for name in ("steps/ingest.py", "evaluation/report/page.html", "evaluation/report/style.css"):
        with (tmp_path / "stillhouse" / name).open("a") as file:
            file.write("# more\n")
        changed = code()
        assert changed not in found, name
        found.add(changed)


def test_every_file_that_shows_in_outputs_is_counted() -> None:
    package = Path(environment.__file__).parents[0]
    files = [path for part in environment.COMPUTING for path in (package / part).rglob("*") if path.is_file()]
    assert {path.suffix for path in files if "__pycache__" not in path.parts} == set(environment.CODE)


def test_every_library_that_computes_is_installed_and_reported() -> None:
    found = describe_environment()["libraries"]
    assert "jinja2" in found, "it writes the reports"
    assert list(found) == list(LIBRARIES) and all(found.values()), found
    assert "+" not in found["torch"], "a build's own mark would keep a laptop's steps from a GPU's"
