"""A workspace as README and the pages after it use one: made, run by DVC, searched, tuned, changed and run again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from documented_commands import blocks, section
from small_workspaces import write_articles, write_corpus
from terminal import Terminal

from stillhouse.core.artifacts import read_manifest
from stillhouse.corpus.store import Corpus

pytestmark = pytest.mark.long


def test_a_workspace_with_questions(terminal: Terminal, tmp_path: Path) -> None:
    write_corpus(tmp_path / "path/to/corpus")
    terminal.type_all(section("docs/train.md", "Training on your corpus"))
    assert len(Corpus.open(Path("artifacts/ingest/corpus")).queries_of("train")) > 20
    [said] = terminal.type_all(section("README.md", "Two commands")).values()
    assert " 1. " in said
    terminal.type_all(section("docs/train.md", "Outputs"))
    assert "RR@10" in Path("our-retriever/README.md").read_text()

    terminal.patch.chdir(tmp_path)
    said = "".join(terminal.type_all(section("docs/tune.md", "Searching for settings")).values())
    assert "dev" in said and Path("tune/journal.log").is_file()

    terminal.type_all(section("docs/train.md", "Null, lists and mappings"))
    assert read_manifest(Path("artifacts/averaged/retriever")).config["alphas"] == [0.5, 1.0]
    assert read_manifest(Path("artifacts/retriever_1/retriever")).config["max_steps"] is None

    # The block of stages is for a recipe of the papers, with a cross-encoder as the teacher.
    _, stages = blocks("docs/fine-tuning.md", "yaml")
    terminal.patch.chdir(tmp_path)
    terminal.patch.setattr(terminal, "after", lambda words: None)
    from stillhouse import cli

    assert cli.main(["new", "staged", "--recipe", "micro"]) == 0
    terminal.patch.chdir("staged")
    Path("params.yaml").write_text(Path("params.yaml").read_text() + "\n" + stages)
    terminal.type_all(section("docs/fine-tuning.md", "Other stages"))
    stages = yaml.safe_load(Path("dvc.yaml").read_text())["stages"]
    assert "artifacts/retriever_1/retriever" in stages["retriever_2"]["deps"]
    assert {"artifacts/distilled_2_run": {"persist": True}} in stages["distilled_2"]["outs"]


def test_a_workspace_without_questions(terminal: Terminal, tmp_path: Path) -> None:
    write_articles(tmp_path / "path/to/articles")
    terminal.type_all(section("docs/train.md", "Without labelled questions"))
    assert json.loads(Path("artifacts/evaluate/evaluation/metrics.json").read_text())


def test_a_paper_s_recipe_is_tried_and_a_workspace_made_for_it(terminal: Terminal, tmp_path: Path) -> None:
    shutil.copytree(write_corpus(tmp_path / "corpus"), tmp_path / "path/to/msmarco")
    terminal.after = lambda words: None
    terminal.type_all(section("docs/train.md", "The papers' own settings"))
    assert Path("try-simlm/artifacts/evaluate/evaluation/report.html").is_file()
    assert yaml.safe_load(Path("msmarco/params.yaml").read_text())["ingest"]["source"] == "../path/to/msmarco"
