"""A task says how long each step will take, if that can be computed ahead."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_task import Artifact

from stillhouse.artifacts import write_manifest
from stillhouse.context import QUIET
from stillhouse.kubernetes.pods import around_step
from stillhouse.kubernetes.pods.several_processes import PROCESSES
from stillhouse.kubernetes.pods.task import describe_use, run_task
from stillhouse.kubernetes.trainjob.settings import NODES, NodeSettings, nodes_text
from stillhouse.steps import registry
from stillhouse.steps.spec import Report
from stillhouse.workflow.uses import Use

USE = Use("indexed", "index", {"corpus": "ingest/corpus", "retriever": "fetch_model/encoder"}, "zero_shot_index")
SAID = r"\[first\] step 1 of 1: indexed \(index\)"


@pytest.fixture
def said(
    run_step: Callable[..., dict[str, Path]],
    small_corpus: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[], str]:
    """Return what a task says before its step, whose work is left out."""
    monkeypatch.setenv("STILLHOUSE_DEVICE", "cpu")
    model = run_step("fetch-model", {}, model=str(tiny_model), query_length=16, passage_length=16)["encoder"]

    def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
        return Report("done")

    monkeypatch.setitem(registry.steps(), "index", dataclasses.replace(registry.steps()["index"], run=run))
    monkeypatch.delenv(QUIET)
    values = {"run_id": "r1", "steps": json.dumps({USE.name: describe_use(USE, {}, USE.step.config())})}
    corpus = shutil.copytree(small_corpus, tmp_path / "corpus")
    write_manifest(corpus, "ingest", {}, {}, {"passages": 24, "queries": {"train": 12, "dev": 6, "test": 6}})
    artifacts = {"ingest__corpus": corpus, "fetch_model__encoder": model}
    artifacts |= {name: tmp_path / "made" / name for name in ("metrics", "page")}

    def first_line() -> str:
        capsys.readouterr()
        run_task("first", values | {name: Artifact(str(path)) for name, path in artifacts.items()})
        return next(line for line in capsys.readouterr().err.splitlines() if "step 1 of 1" in line)

    return first_line


def test_a_step_is_announced_with_its_time(said: Callable[[], str]) -> None:
    assert re.fullmatch(rf"{SAID}, about \d+ s", said())


def test_no_time_is_said_on_a_gpu(said: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(around_step, "on_processor", lambda: False)
    assert re.fullmatch(SAID, said())


def test_no_time_is_said_of_shared_work_or_before_there_is_a_corpus(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(QUIET)
    monkeypatch.setattr(around_step, "on_processor", lambda: True)
    assert around_step.about(USE.step, USE.step.config(), tmp_path / "none", [tmp_path / "none"]) == ""
    monkeypatch.setattr(around_step, "scale_of", lambda *folders: pytest.fail("it is not of use"))
    with monkeypatch.context() as patch:
        patch.setenv(PROCESSES, "2")
        encode = registry.find_step("encode")
        assert around_step.about(encode, encode.config(), small_corpus, [small_corpus]) == ""
    settings = NodeSettings(
        nodes=2, task="first", runtime="torch", cpu="1", cpu_limit="1", memory="1Gi", memory_limit="1Gi"
    )
    monkeypatch.setenv(NODES, nodes_text({"encode": settings}))
    assert around_step.about(USE.step, USE.step.config(), small_corpus, [small_corpus]) == "", "nodes encode a part"
