"""The tutorials, typed from their first line to their last, on a few articles and with few steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from chat_server import serving
from documented_commands import blocks, section
from kubeflow_server import DIGEST, Api
from released_repositories import Repository
from repositories import call
from served_commands import Served
from small_workspaces import asking, write_articles, write_corpus
from terminal import Terminal

import stillhouse
from stillhouse.cli import label
from stillhouse.core.remote.git import Git
from stillhouse.corpus.store import Corpus
from stillhouse.kubeflow.pipelines import submit
from stillhouse.releases.tags import read_history

UP_TO_THE_CORPUS = {"stillhouse run": "stillhouse run --until ingest"}


def test_the_first_page_has_the_commands_of_the_readme() -> None:
    first = section("docs/index.md", "Stillhouse")
    assert [one.text for one in first] == [one.text for one in section("README.md", "Stillhouse")][: len(first)]


@pytest.mark.long
def test_a_folder_is_searched(terminal: Terminal) -> None:
    write_articles(Path("path/to/files"))
    terminal.type_all(section("docs/tutorials/own-folder.md", "Begin"))
    terminal.type_all(section("docs/tutorials/own-folder.md", "Run"))
    assert Path("artifacts/evaluate/evaluation/report.html").is_file()
    [said] = terminal.type_all(section("docs/tutorials/own-folder.md", "Look at the result")).values()
    assert " 1. " in said


def test_own_questions_become_train_and_dev_questions(terminal: Terminal, tmp_path: Path) -> None:
    terminal.patch.setattr(label, "serve", asking("bats#1", "who hears in the dark"))
    terminal.replaced = UP_TO_THE_CORPUS
    write_corpus(tmp_path / "path/to/corpus")
    write_articles(tmp_path / "path/to/articles")
    terminal.type_all(section("docs/tutorials/own-questions.md", "You have labelled questions"))
    assert len(Corpus.open(Path("artifacts/ingest/corpus")).queries_of("train")) > 20
    terminal.type_all(section("docs/tutorials/own-questions.md", "You have no questions but can spare half an hour"))
    assert yaml.safe_load(Path("params.yaml").read_text())["ingest"]["dev_queries"] == "../questions"


def test_questions_are_made(terminal: Terminal) -> None:
    write_articles(Path("path/to/articles"))
    with serving() as server:
        terminal.replaced = UP_TO_THE_CORPUS | {"http://localhost:11434/v1": server.address}
        terminal.type_all(section("docs/tutorials/no-questions.md", "Sentences"))
        terminal.type_all(section("docs/tutorials/no-questions.md", "A model on a server"))
    for corpus in ("plain/artifacts/ingest/corpus", "corpus"):
        assert len(Corpus.open(Path(corpus)).queries_of("train")) > 0


def test_the_notebook_s_cells_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    real = stillhouse.fetch_model
    monkeypatch.setattr(stillhouse, "fetch_model", lambda *given, **named: real(*given, **named, layers=2))
    names: dict[str, Any] = {}
    for block in blocks("docs/tutorials/notebook.md", "python"):
        exec(compile(block, "notebook.md", "exec"), names)
    assert [hit.rank for hit in names["hits"]] == [1, 2]
    assert names["figures"].keys() == {"bm25", "base", "trained"}


def test_a_run_is_sent_to_kubeflow(terminal: Terminal, kubeflow: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)
    terminal.replaced = {"sha256:...": DIGEST}
    [said] = terminal.type_all(section("docs/tutorials/kubeflow.md", "Start a run")).values()
    assert said.endswith("succeeded\n") and len(kubeflow.runs) == 1


@pytest.mark.long
def test_a_release_follows_its_corpus(terminal: Terminal, tmp_path: Path) -> None:
    call(tmp_path, "git", "init", "--quiet", "--bare", "--initial-branch", "main", "releases.git")
    address = "https://git.example/search/releases.git"
    terminal.replaced = {address: str(tmp_path / "releases.git"), "/mnt/storage": str(tmp_path / "storage")}
    articles = write_articles(terminal.home / "articles")
    terminal.type_all(section("docs/tutorials/refresh.md", "The first release"))
    changed = next(articles.glob("*.md"))
    changed.write_text(changed.read_text().replace(" the ", " a "))
    terminal.type_all(section("docs/tutorials/refresh.md", "Refresh"))
    terminal.type_all(section("docs/tutorials/refresh.md", "If a release is bad"))
    history = read_history(Git.of(Path()))
    assert len(history.releases) == 2 and history.champion and history.champion.name == "v1.0.0"


def test_a_service_answers_and_follows_releases(
    released: Repository, two_releases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    (tmp_path / "artifacts/ingest").mkdir(parents=True)
    (tmp_path / "artifacts/best").symlink_to(two_releases[0])
    (tmp_path / "artifacts/ingest/corpus").symlink_to(two_releases[0] / "corpus")
    replaced = {"https://git.example/search/releases.git": str(released.address)}
    served.terminal = terminal = Terminal(tmp_path, monkeypatch, replaced, {"stillhouse": served})
    said = list(terminal.type_all(section("docs/tutorials/serve-and-publish.md", "Serve it")).values())[-1]
    assert len(json.loads(said)["answers"][0]["hits"]) == 3
    names: dict[str, Any] = {}
    exec(compile(*blocks("docs/tutorials/serve-and-publish.md", "python"), "the page", "exec"), names)
    assert names["vectors"].shape[0] == 1
    terminal.type_all(section("docs/tutorials/serve-and-publish.md", "Publish to a vector store"))
    terminal.type_all(section("docs/tutorials/serve-and-publish.md", "Follow the releases"))
    assert served.started[-1] == [f"git+{released.address}"]
