"""`stillhouse new` makes a folder that DVC can run at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stillhouse import cli
from stillhouse.pipeline.dvc_file import render
from stillhouse.pipeline.recipes import load_recipe, moved

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
    assert set(recipe) == {"ingest", "distilled", "retriever_1"}, "a new workspace has only what the recipe sets"
    assert "# A recipe with a comment." in (folder / "params.yaml").read_text()
    stages = yaml.safe_load((folder / "dvc.yaml").read_text())["stages"]
    assert stages["corpus"]["deps"] == ["artifacts/plan/corpus.json", "${ingest.source}"]
    config = (folder / ".dvc" / "config").read_text()
    assert "no_scm = True" in config and "analytics = false" in config
    assert {path.name for path in folder.iterdir()} == {".dvc", ".dvcignore", ".gitignore", "dvc.yaml", "params.yaml"}


def test_a_source_name_is_not_a_dvc_dependency() -> None:
    assert cli.main(["new", "folder", "--source", "sample", "--recipe", "recipe.yaml"]) == 0
    assert load_recipe(Path("folder/params.yaml"))["ingest"]["source"] == "sample"
    deps = yaml.safe_load(Path("folder/dvc.yaml").read_text())["stages"]["corpus"]["deps"]
    assert deps == ["artifacts/plan/corpus.json"]


def test_without_dvc_a_workspace_becomes_its_repository_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as absent:
        absent.setitem(sys.modules, "dvc", None)
        assert cli.main(["new", "folder", "--source", "articles", "--recipe", "recipe.yaml"]) == 0
    assert "cd folder && stillhouse run" in capsys.readouterr().out and not Path("folder/.dvc").exists()
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet"], cwd="folder", check=True)
    assert (
        b"corpus"
        in subprocess.run(
            [sys.executable, "-m", "dvc", "stage", "list"], cwd="folder", check=True, capture_output=True
        ).stdout
    )


def test_an_existing_workspace_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    Path("folder/params.yaml").write_text("mine")
    assert cli.main(["new", "folder", "--source", "articles", "--recipe", "recipe.yaml"]) == 2
    assert "folder already has a params.yaml" in capsys.readouterr().err
    assert [path.name for path in Path("folder").iterdir()] == ["params.yaml"]


def test_only_relative_paths_that_exist_move(here: Path) -> None:
    for source, expected in {"articles": "../../articles", "sample": "sample", str(here): str(here)}.items():
        recipe = {"ingest": {"source": source}}
        assert moved(recipe, here, here / "a" / "b") == {"ingest": {"source": expected}}
        assert recipe == {"ingest": {"source": source}}


def test_a_path_in_a_repository_stays(here: Path) -> None:
    ingest = {"repo": "articles", "source": "articles", "revision": "articles"}
    assert moved({"ingest": ingest}, here, here / "a") == {"ingest": ingest | {"repo": "../articles"}}


def test_the_recipe_for_a_corpus_without_labels_takes_a_source_and_labelled_test_queries() -> None:
    assert cli.main(["new", "folder", "--source", "articles", "--recipe", "unlabelled"]) == 0
    path = Path("folder/params.yaml")
    recipe = load_recipe(path)
    assert recipe["ingest"]["source"] == "../articles" and recipe["ingest"]["queries"] == "pairs"
    Path("few").mkdir()
    recipe["ingest"]["test_queries"] = "../few"
    deps = yaml.safe_load(render(recipe, path.parent))["stages"]["corpus"]["deps"]
    assert deps[1:] == ["${ingest.source}", "${ingest.test_queries}"]


def ignored(folder: Path, *names: str) -> set[str]:
    """Return the names that git itself says it ignores."""
    done = subprocess.run(["git", "check-ignore", *names], cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return set(done.stdout.splitlines())


OF_DVC = (".dvc/cache/files/md5/00/1", ".dvc/tmp/lock", ".dvc/config.local")


@pytest.mark.parametrize("inside", ["a repository", "none yet"])
def test_git_takes_neither_dvcs_cache_nor_artifacts(inside: str, here: Path) -> None:
    if inside == "a repository":
        subprocess.run(["git", "init", "--quiet"], cwd=here, check=True)
    assert cli.main(["new", "folder", "--source", "articles", "--recipe", "recipe.yaml"]) == 0
    folder = here / "folder"
    if inside == "none yet":
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    for name in (*OF_DVC, "artifacts/ingest/corpus/manifest.json", ".stillhouse/work/half"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("not to be committed")
    status = ["git", "status", "--porcelain", "--untracked-files=all", "."]
    shown = subprocess.run(status, cwd=folder, capture_output=True, text=True, check=True).stdout.split()[1::2]
    taken = {".dvc/.gitignore", ".dvc/config", ".dvcignore", ".gitignore", "dvc.yaml", "params.yaml"}
    assert {name.removeprefix("folder/") for name in shown} == taken


@pytest.mark.parametrize("end", ["\n", "", "\r\n"])
def test_existing_ignore_rules_are_kept(end: str, here: Path) -> None:
    folder = here / "folder"
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    had = {
        ".gitignore": b"# mine \xff\n/.stillhouse/\nsecrets.env" + end.encode(),
        ".dvcignore": b"large" + end.encode(),
    }
    for name, content in had.items():
        (folder / name).write_bytes(content)
    assert cli.main(["new", "folder", "--source", "articles", "--recipe", "recipe.yaml"]) == 0
    for name, content in had.items():
        assert (folder / name).read_bytes().startswith(content)
    names = {"secrets.env", "artifacts/ingest/corpus/manifest.json", ".stillhouse/work/half", *OF_DVC}
    assert ignored(folder, *names, "params.yaml") == names
    lines = (folder / ".dvcignore").read_text().splitlines()
    assert lines[0] == "large" and lines[-1] == ".stillhouse"


@pytest.mark.parametrize("source", ["", " ", "artciles", "https://example.org/articles", "x" * 300, "~nobody-here/x"])
def test_a_missing_source_is_refused(source: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", "folder", "--source", source, "--recipe", "recipe.yaml"]) == 2
    logged = capsys.readouterr().err
    why = "path" if source[:1] in ("x", "~") else "does not exist" if source.strip() else "is empty"
    assert why in logged and not (here / "folder").exists()
    assert cli.main(["run", "--recipe", "micro", "--source", ""]) == 2
    assert cli.main(["ingest", "--source", "", "--corpus", "corpus"]) == 2
    assert not (here / "artifacts").exists() and not (here / "corpus").exists()
