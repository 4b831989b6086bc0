"""`stillhouse new` makes a folder that DVC can run at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from stillhouse import cli
from stillhouse.graph import find_uses
from stillhouse.surfaces.dvc_file import render
from stillhouse.surfaces.recipes import load_recipe, moved

RECIPE = """\
# A recipe with a comment.
ingest:
  source: elsewhere   # replaced
distilled: &same
  learning_rate: 3e-4
retriever_1:
  <<: *same
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "articles").mkdir()
    return tmp_path


def test_source_is_usable_from_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", "trials/first", "--source", "articles", "--recipe", "recipe.yaml"]) == 0
    assert "cd trials/first && dvc repro" in capsys.readouterr().out
    folder = Path("trials/first")
    recipe = load_recipe(folder / "params.yaml")
    assert recipe["ingest"] == {"source": "../../articles"}
    assert recipe["distilled"] == recipe["retriever_1"] == {"learning_rate": "3e-4"}
    assert set(recipe) == set(find_uses())
    assert "# A recipe with a comment." in (folder / "params.yaml").read_text()
    stages = yaml.safe_load((folder / "dvc.yaml").read_text())["stages"]
    assert stages["ingest"]["deps"] == ["artifacts/environment.json", "${ingest.source}"]
    config = (folder / ".dvc" / "config").read_text()
    assert "no_scm = True" in config and "analytics = false" in config
    assert {path.name for path in folder.iterdir()} == {".dvc", ".dvcignore", ".gitignore", "dvc.yaml", "params.yaml"}


def test_a_name_is_no_dependency() -> None:
    assert cli.main(["new", "folder", "--source", "sample", "--recipe", "recipe.yaml"]) == 0
    assert load_recipe(Path("folder/params.yaml"))["ingest"]["source"] == "sample"
    deps = yaml.safe_load(Path("folder/dvc.yaml").read_text())["stages"]["ingest"]["deps"]
    assert deps == ["artifacts/environment.json"]


def test_an_existing_workspace_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    Path("folder/params.yaml").write_text("mine")
    assert cli.main(["new", "folder", "--source", "articles", "--recipe", "recipe.yaml"]) == 2
    assert "folder has a params.yaml already" in capsys.readouterr().err
    assert [path.name for path in Path("folder").iterdir()] == ["params.yaml"]


def test_a_bad_recipe_makes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipe.yaml").write_text("distilled: {learning_rat: 1}")
    assert cli.main(["new", "folder", "--source", "articles", "--recipe", "recipe.yaml"]) == 2
    assert "did you mean 'learning_rate'?" in capsys.readouterr().err
    assert not Path("folder").exists()


def test_only_relative_paths_that_exist_move(here: Path) -> None:
    for source, expected in {"articles": "../../articles", "sample": "sample", str(here): str(here)}.items():
        recipe = {"ingest": {"source": source}}
        assert moved(recipe, here, here / "a" / "b") == {"ingest": {"source": expected}}
        assert recipe == {"ingest": {"source": source}}


def test_the_recipe_for_a_corpus_without_labels_takes_a_source_and_labelled_test_queries() -> None:
    assert cli.main(["new", "folder", "--source", "articles", "--recipe", "unlabelled"]) == 0
    path = Path("folder/params.yaml")
    recipe = load_recipe(path)
    assert recipe["ingest"]["source"] == "../articles" and recipe["ingest"]["queries"] == "pairs"
    Path("few").mkdir()
    recipe["ingest"]["test_queries"] = "../few"
    deps = yaml.safe_load(render(recipe, path.parent))["stages"]["ingest"]["deps"]
    assert deps[1:] == ["${ingest.source}", "${ingest.test_queries}"]
