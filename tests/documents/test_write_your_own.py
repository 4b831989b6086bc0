"""The examples of docs/write-your-own.md run as they are written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from documented_commands import blocks

import stillhouse
from stillhouse.core.artifacts import read_manifest
from stillhouse.corpus.sources import detect
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.rows import Passage, Rejected
from stillhouse.pipeline.steps import pretrain
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pretraining import objectives

PAGE = "docs/write-your-own.md"
LOSS, SOURCE, OBJECTIVE, STEP = blocks(PAGE, "python")


def executed(block: str) -> dict[str, Any]:
    written = sys.modules["written"] = ModuleType("written")  # dataclasses look their module up
    exec(compile(block, PAGE, "exec"), vars(written))
    return vars(written)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_corpus: Path, tiny_model: Path) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    Path("corpus").symlink_to(small_corpus)
    Path("model").symlink_to(tiny_model)
    yield tmp_path


def test_a_loss_trains_a_retriever() -> None:
    assert str(read_manifest(executed(LOSS)["trained"].folder).config["loss"]).startswith("written.hinge ")


def test_a_reader_is_a_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(detect.OPENERS, "notes", executed(SOURCE)["open_notes"])
    monkeypatch.setattr(detect, "FORMATS", (*detect.FORMATS, "notes"))
    Path("tea.notes").write_text("a leaf\n\nwith water\n")
    first, second, third = detect.open_source(str(folder), "notes", Options()).rows()
    assert isinstance(first, Passage) and (first.id, first.text) == ("tea-1", "a leaf")
    assert isinstance(second, Rejected) and second.where == "tea.notes:2"
    assert isinstance(third, Passage) and third.position == 2


def test_an_objective_pre_trains(small_corpus: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = executed(OBJECTIVE)["bow_bert"]
    monkeypatch.setattr(objectives, "TABLE", (*objectives.TABLE, row))
    tokens = stillhouse.tokenize(small_corpus, tiny_model, "tokens", max_length=32)
    few = {"max_steps": 2, "batch_size": 4, "max_length": 32}
    head = stillhouse.pretrain(tokens, tiny_model, "head", objective="mlm", trainable="head", **few)
    config = pretrain.Config(objective="bow_bert", **few)
    outputs = {port.name: Path("pretrained", port.name) for port in pretrain.STEP.outputs}
    report = execute(pretrain.STEP, config, {"tokens": tokens.folder, "init": head.folder}, outputs)
    assert "bow_bert, 2 steps" in report.summary


def test_a_step_runs(small_corpus: Path) -> None:
    written = executed(STEP)
    report = execute(written["STEP"], written["Config"](longest=9), {"corpus": small_corpus}, {"list": Path("list")})
    assert report.metrics == {"long": 24.0} and len(Path("list/long.txt").read_text().split()) == 24
