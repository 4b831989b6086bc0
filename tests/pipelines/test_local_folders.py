"""What a local run of a pipeline removes and replaces: its own folders, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stillhouse import cli
from stillhouse.errors import InputError
from stillhouse.pipelines import local
from stillhouse.pipelines.catalog import RESULTS, Request
from stillhouse.pipelines.local import PipelineFailed, run_local

VALUES: dict[str, dict[str, Any]] = {"refresh": {"releases": "https://git.example/releases.git"}}


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
        folder = workspace / "outputs" / "run" / result.components[0] / result.folder
        folder.mkdir(parents=True)
        (folder / result.page).write_text(f"run {len(found)}")

    monkeypatch.setattr(local, "run_pipeline", run)
    monkeypatch.setattr(Request, "build", lambda self, table: self.pipeline)
    return found


@pytest.mark.parametrize("pipeline", ["compare-objectives", "zero-shot"])
def test_shards_of_pipelines_that_are_not_divided_are_refused(pipeline: str, ran: list[str], tmp_path: Path) -> None:
    assert cli.main(["pipeline", "run-local", pipeline, "--shards=2", f"--folder={tmp_path}"]) == 2
    assert not ran and not list(tmp_path.iterdir())


def test_unfinished_work_of_steps_stays(ran: list[str], tmp_path: Path) -> None:
    kept = tmp_path / ".stillhouse" / "work" / "pretrain-0123" / "checkpoint"
    kept.parent.mkdir(parents=True)
    kept.write_text("days of work")
    run_local(Request("train"), {}, tmp_path)
    assert kept.read_text() == "days of work"
    assert not Path(ran[0]).exists() and [path.name for path in kept.parents[2].iterdir()] == ["work"]


@pytest.mark.parametrize("pipeline", RESULTS)
def test_a_result_replaces_only_that_of_an_earlier_run(pipeline: str, ran: list[str], tmp_path: Path) -> None:
    values = VALUES.get(pipeline, {})
    for _ in range(2):
        result = run_local(Request(pipeline), values, tmp_path)
    assert (result / RESULTS[pipeline].page).read_text() == "run 2"
    result.rename(tmp_path / "aside")
    result.mkdir()
    (result / RESULTS[pipeline].page).write_text("by hand")
    with pytest.raises(InputError, match=f"{result.name} exists and no step wrote it"):
        run_local(Request(pipeline), values, tmp_path)
    assert (result / RESULTS[pipeline].page).read_text() == "by hand" and len(ran) == 2, "nothing was begun"


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
