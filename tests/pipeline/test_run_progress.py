"""Runs report the current step, the number of steps and the time left, in one process and in DVC stages alike."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from done_again import UNKNOWN, descendants
from quick_steps import quicken_steps

from stillhouse import cli
from stillhouse.core.context import QUIET
from stillhouse.core.monitoring.activity import in_words
from stillhouse.pipeline import run_progress
from stillhouse.pipeline.graph import ARTIFACTS, SIMLM_STEPS
from stillhouse.pipeline.graph_steps import stages_of
from stillhouse.pipeline.steps import registry

NUMBER = len(SIMLM_STEPS)
NAMES = [step.name for step in SIMLM_STEPS]
STAGES = [stage.name for stage in stages_of(SIMLM_STEPS)]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quicken_steps(monkeypatch)
    monkeypatch.delenv(QUIET)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("known", [False, True])
def test_run_says_each_step_its_total_and_the_time(
    known: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time is known once there are a corpus and a base model: here every step takes a minute."""
    if known:
        monkeypatch.setattr(run_progress, "expected_seconds", lambda steps, *more: {step.name: 60.0 for step in steps})
    Path("params.yaml").write_text("")
    assert cli.main(["run"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith(("[", " "))]
    assert said[0] == f"{NUMBER} of {NUMBER} steps to do" + f": about {NUMBER} min on this machine:" * known
    steps = [
        f"step {number} of {NUMBER}: {step.name} ({step.kind})" for number, step in enumerate(SIMLM_STEPS, start=1)
    ]
    if known:
        left = [f"; about {in_words(60.0 * (NUMBER - done))} left in all" for done in range(NUMBER - 1)]
        steps = [f"{line}, about 60 s{rest}" for line, rest in zip(steps, [*left, ""])]
    assert said[1:-2] == steps
    assert said[-1].startswith("report: artifacts/evaluate/evaluation/report.html")
    assert said[-2].startswith(f"{NUMBER} steps in ") and said[-2].endswith(", 0 of them were up to date")

    Path("params.yaml").write_text("evaluate: {bootstrap_samples: 300}\nmine_2: {negatives_depth: 3}\n")
    again = descendants("evaluate", "mine_2")
    assert cli.main(["run"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith(("[", " "))]
    assert said[0].startswith(f"{len(again)} of {NUMBER} steps to do")
    assert said[-2].endswith(f", {NUMBER - len(again | UNKNOWN)} of them were up to date")
    logged = [line.split()[4].rstrip(",") for line in said[1:-2]]
    assert logged == [name for name in NAMES if name in again | UNKNOWN]
    assert said[-3].startswith(f"step {NAMES.index(logged[-1]) + 1} of {NUMBER}: {logged[-1]} (evaluate)")


def test_the_plan_of_a_stage_changes_with_what_it_computes_and_with_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plans(text: str) -> dict[str, bytes]:
        Path("params.yaml").write_text(text)
        assert cli.main(["plan"]) == 0
        return {path.stem: path.read_bytes() for path in (ARTIFACTS / "plan").iterdir()}

    def differ(one: dict[str, bytes], two: dict[str, bytes]) -> set[str]:
        return {name for name in one if one[name] != two[name]}

    first = plans("")
    assert sorted(first) == sorted(STAGES)
    assert plans("# a comment\nretriever_2: {}\nevaluate: {}\n") == first
    assert plans("retriever_2: {batch_size: 64}\n") == first, "its default"
    assert differ(first, plans("retriever_2: {batch_size: 3}\n")) == {"retriever_2"}
    step = registry.steps()["index"]
    monkeypatch.setitem(registry.steps(), "index", dataclasses.replace(step, version=step.version + 1))
    assert differ(first, plans("")) == {"retriever_1", "retriever_2", "distillation"}
    more = Path("more.txt")  # which dvc.yaml does not name, as it was written before
    found = [plans("ingest: {dev_queries: more.txt}\n") for text in ("one", "two") if more.write_text(text)]
    assert differ(*found) == {"corpus"}


def test_quiet_mode_reports_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    Path("params.yaml").write_text("")
    assert cli.main(["run", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def stage(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Runs a stage as DVC does and returns what it says about its place."""
    assert cli.main(["run", name]) == 0
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]


def test_a_stage_shows_the_numbers_of_its_steps_in_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A full run, and a run of a changed stage."""
    Path("params.yaml").write_text("")
    said = [line for name in STAGES for line in stage(name, capsys)]
    assert [line.split(",")[0] for line in said] == [
        f"step {number} of {NUMBER}: {step.name} ({step.kind})" for number, step in enumerate(SIMLM_STEPS, start=1)
    ]
    Path("params.yaml").write_text("reranker: {batch_size: 3}\n")
    changed = [line.split()[4] for line in stage("distillation", capsys)]
    assert changed == [name for name in NAMES if name in descendants("reranker") - {"best", "best_run", "evaluate"}]
    assert stage("retriever_2", capsys) == []
