"""What a local run of a pipeline removes and replaces: its own folders, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.artifacts import write_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.chat_api import Reply
from stillhouse.corpus.query_generation import KeptAnswers
from stillhouse.kubeflow.pipelines import local
from stillhouse.kubeflow.pipelines.catalog import RESULTS, Request
from stillhouse.kubeflow.pipelines.local import PipelineFailed, run_local


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the work folders of fake runs. Each run writes a checkpoint and the page of its result."""
    monkeypatch.delenv("STILLHOUSE_WORK", raising=False)
    found: list[str] = []

    def run(pipeline: str, values: Mapping[str, Any], workspace: Path) -> None:
        found.append(os.environ["STILLHOUSE_WORK"])
        work = Path(found[-1]) / "train-0123"
        work.mkdir(parents=True)
        (work / "checkpoint").write_text("half")
        result = RESULTS[pipeline]
        folder = workspace / "outputs" / "run" / result.components[0] / (result.artifact or result.output)
        folder.mkdir(parents=True)
        (folder / result.page).write_text(f"run {len(found)}")
        for source in Request(pipeline).kept():
            folder = workspace / "outputs" / "run" / "some-task" / "folder" / source
            folder.mkdir(parents=True)
            (folder / "content").write_text(f"run {len(found)}")
            write_manifest(folder, "stand-in", {}, {}, {})

    monkeypatch.setattr(local, "run_pipeline", run)
    monkeypatch.setattr(Request, "build", lambda self, table: self.pipeline)
    return found


def test_answers_of_chat_models_stay(ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were paid for. Checkpoints and files beside them go."""
    request, answered = {"model": "m", "seed": 1}, Reply("What sings?", cut=False)
    faked = local.run_pipeline

    def answering(pipeline: str, values: Mapping[str, Any], workspace: Path) -> None:
        faked(pipeline, values, workspace)
        found.append(KeptAnswers().find(request))
        KeptAnswers().keep(request, answered)
        (Path(ran[-1]) / "note").write_text("left behind")

    found: list[Reply | None] = []
    monkeypatch.setattr(local, "run_pipeline", answering)
    for _ in range(2):
        run_local(Request("train"), {}, tmp_path)
        assert [path.name for path in Path(ran[-1]).iterdir()] == ["answers"]
    assert found == [None, answered]


def test_the_winner_appears_with_its_evaluation_or_not_at_all(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = local.run_pipeline

    def lose_one(pipeline: Any, values: Any, workspace: Path) -> None:
        working(pipeline, values, workspace)
        [lost] = workspace.glob("outputs/run/*/folder/best/hybrid")
        shutil.rmtree(lost)

    monkeypatch.setattr(local, "run_pipeline", lose_one)
    with pytest.raises(PipelineFailed, match="best/hybrid"):
        run_local(Request("train"), {}, tmp_path)
    assert not (tmp_path / "evaluation").exists() and not (tmp_path / "artifacts").exists()


def test_a_failed_validation_replaces_no_folder_of_others(ran: list[str], tmp_path: Path) -> None:
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="validation exists and no step wrote it"):
        run_local(Request("train"), {}, tmp_path)
    run_local(Request("zero-shot"), {}, tmp_path)  # it writes no folder `validation`
    assert len(ran) == 1


def test_a_run_that_fails_keeps_its_unfinished_work(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = local.run_pipeline

    def fail(*given: Any) -> None:
        working(*given)
        raise PipelineFailed("a task failed")

    monkeypatch.setattr(local, "run_pipeline", fail)
    with pytest.raises(PipelineFailed):
        run_local(Request("train"), {}, tmp_path)
    assert (Path(ran[0]) / "train-0123" / "checkpoint").is_file() and not (tmp_path / ".kubeflow").exists()
