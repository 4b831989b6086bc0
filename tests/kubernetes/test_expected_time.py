"""A task says how long each step will take, if that can be computed ahead."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from test_task import Artifact

from stillhouse.artifacts import write_manifest
from stillhouse.context import QUIET
from stillhouse.kubernetes.pods import around_step
from stillhouse.kubernetes.pods.several_processes import PROCESSES
from stillhouse.kubernetes.pods.task import describe_use, run_task
from stillhouse.kubernetes.trainjob.settings import NODES, NodeSettings, nodes_text
from stillhouse.retrieval.models.token_lengths import token_lengths
from stillhouse.steps import registry
from stillhouse.steps.spec import Report
from stillhouse.workflow import first_run_times
from stillhouse.workflow.graph import find_uses
from stillhouse.workflow.uses import Use

USE = Use("indexed", "index", {"corpus": "ingest/corpus", "retriever": "fetch_model/encoder"}, "zero_shot_index")
AGAIN = dataclasses.replace(USE, name="again")
SAID = r"\[first\] step 1 of 1: indexed \(index\)"


@pytest.fixture
def said(
    run_step: Callable[..., dict[str, Path]],
    small_corpus: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., list[str]]:
    """Return what a task says before each of its steps. `ingest` copies a corpus, and no other step does anything."""
    monkeypatch.setenv("STILLHOUSE_DEVICE", "cpu")
    model = run_step("fetch-model", {}, model=str(tiny_model), query_length=16, passage_length=16)["encoder"]

    facts = {"passages": 24, "queries": {"train": 12, "dev": 6, "test": 6}}

    def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
        if "corpus" in outputs:
            shutil.copytree(small_corpus, outputs["corpus"], dirs_exist_ok=True)
        return Report("done", {}, facts)

    for name in ("ingest", "index"):
        monkeypatch.setitem(registry.steps(), name, dataclasses.replace(registry.steps()[name], run=run))
    monkeypatch.delenv(QUIET)
    corpus = shutil.copytree(small_corpus, tmp_path / "corpus")
    write_manifest(corpus, "ingest", {}, {}, facts)
    artifacts = {"ingest__corpus": corpus, "fetch_model__encoder": model}
    artifacts |= {name: tmp_path / "made" / name for name in ("metrics", "page")}

    def lines(*uses: Use) -> list[str]:
        capsys.readouterr()
        steps = {use.name: describe_use(use, {}, use.step.config()) for use in uses}
        values = {"run_id": "r1", "steps": json.dumps(steps)}
        run_task("first", values | {name: Artifact(str(path)) for name, path in artifacts.items()})
        return [line for line in capsys.readouterr().err.splitlines() if re.match(r"\[first\] step \d", line)]

    return lines


def test_a_step_is_announced_with_its_time(said: Callable[..., list[str]]) -> None:
    (line,) = said(USE)
    assert re.fullmatch(rf"{SAID}, about \d+ s", line)


def test_no_time_is_said_on_a_gpu(said: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(around_step, "on_processor", lambda: False)
    (line,) = said(USE)
    assert re.fullmatch(SAID, line)


@pytest.mark.parametrize("uses", [(USE, AGAIN), (find_uses()["ingest"], USE, AGAIN)], ids=["given", "made"])
def test_a_task_reads_passages_for_the_time_once(
    uses: Sequence[Use], said: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the first step that has a corpus, which is given or made by the task's own `ingest`."""
    read = Mock(wraps=token_lengths)
    monkeypatch.setattr(first_run_times, "token_lengths", read)
    lines = said(*uses)
    assert ["about" in line for line in lines] == [use.step_name == "index" for use in uses]
    assert read.call_count == 1


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
