"""Runs report the current step, the number of steps and the time left, in one process and in DVC stages alike."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest
from done_again import UNKNOWN, descendants
from quick_steps import quicken_steps

from stillhouse import cli
from stillhouse.core.context import QUIET
from stillhouse.pipeline.graph import ARTIFACTS, USES, known_uses
from stillhouse.pipeline.in_process import run_uses
from stillhouse.pipeline.recipes import configs
from stillhouse.pipeline.run_times import estimate, expected_seconds, note_seconds
from stillhouse.pipeline.steps import registry
from stillhouse.pipeline.uses import stages_of

NUMBER = len(USES)
NAMES = [use.name for use in USES]
STAGES = [stage.name for stage in stages_of(USES)]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quicken_steps(monkeypatch)
    monkeypatch.delenv(QUIET)
    monkeypatch.chdir(tmp_path)


def settings(**recipe: Any) -> dict[str, Any]:
    return configs(recipe, "recipe")


def corpus_of(passages: int, root: Path) -> Path:
    """Write a corpus whose manifest records this many passages."""
    from stillhouse.core.artifacts import whole_folder, write_manifest

    with whole_folder(root / "ingest" / "corpus") as staging:
        write_manifest(staging, "ingest", {}, {}, {"passages": passages})
    return root


def test_an_estimate_is_the_time_of_the_same_work(tmp_path: Path) -> None:
    """By hand: the last time counts. Twice the passages take twice the time, but a fixed number of steps does not."""
    root, uses = corpus_of(100, tmp_path / "one"), known_uses({})
    own = settings(retriever_1={"max_steps": 50})
    assert expected_seconds(uses["retriever_1_index"], own["retriever_1_index"], root) is None
    for seconds in (500.0, 60.0):
        note_seconds(uses["retriever_1_index"], own["retriever_1_index"], root, seconds)
    note_seconds(uses["retriever_1"], own["retriever_1"], root, 30.0)
    note_seconds(uses["fetch_model"], own["fetch_model"], root, 7.0)
    both = [uses["retriever_1_index"], uses["retriever_1"], uses["fetch_model"]]
    assert estimate(both, own, root).total() == "about 2 min"
    twice = corpus_of(200, tmp_path / "two")
    found = [expected_seconds(use, own[use.name], twice) for use in both]
    assert found == [120.0, 30.0, 7.0]
    # The same work of another use; other settings are unknown.
    assert expected_seconds(uses["distilled_index"], own["distilled_index"], root) == 60.0
    other = settings(retriever_1_index={"kind": "hnsw"})["retriever_1_index"]
    assert expected_seconds(uses["retriever_1_index"], other, root) is None


def test_unknown_times_are_named(tmp_path: Path) -> None:
    own, use = settings(), known_uses({})["bm25"]
    assert estimate([use], own, tmp_path).total().startswith("no estimate yet, because nothing similar has run here")
    note_seconds(use, own["bm25"], tmp_path, 600)
    found = estimate([use, known_uses({})["ingest"]], own, tmp_path)
    assert found.total(" left") == "more than 10 min left (1 of 2 steps run here for the first time)"
    assert found.of("bm25") == "about 10 min" and found.of("ingest") == "" and not found.stages()


def test_run_says_each_step_and_its_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("params.yaml").write_text("")
    assert cli.main(["run"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("[")]
    why = "no estimate yet, because nothing similar has run here and there is no corpus yet"
    assert said[0] == f"{NUMBER} of {NUMBER} steps to do: {why}"
    steps = [f"step {number} of {NUMBER}: {use.name} ({use.step_name}), " for number, use in enumerate(USES, start=1)]
    assert [line[: len(start)] for line, start in zip(said[1:-1], steps, strict=True)] == steps
    assert said[-1].startswith(f"{NUMBER} steps in ") and said[-1].endswith(", 0 of them were up to date")

    for use in USES:
        note_seconds(use, settings()[use.name], ARTIFACTS, 60.0)
    Path("params.yaml").write_text("evaluate: {bootstrap_samples: 300}\nmine_2: {negatives_depth: 3}\n")
    own = settings(evaluate={"bootstrap_samples": 300}, mine_2={"negatives_depth": 3})
    for name in ("evaluate", "mine_2"):
        note_seconds(known_uses({})[name], own[name], ARTIFACTS, 60.0)
    again = descendants("evaluate", "mine_2")
    assert cli.main(["run"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith(("[", " "))]
    assert said[0] == f"{len(again)} of {NUMBER} steps to do: about {len(again)} min:"
    assert said[-1].endswith(f", {NUMBER - len(again | UNKNOWN)} of them were up to date")
    logged = [line.split()[4] for line in said[1:-1]]
    assert logged == [name for name in NAMES if name in again | UNKNOWN]
    assert said[-2] == f"step {NAMES.index(logged[-1]) + 1} of {NUMBER}: {logged[-1]} (evaluate), about 60 s"


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
        f"step {number} of {NUMBER}: {use.name} ({use.step_name})" for number, use in enumerate(USES, start=1)
    ]
    Path("params.yaml").write_text("reranker: {batch_size: 3}\n")
    changed = [line.split()[4] for line in stage("distillation", capsys)]
    assert changed == [name for name in NAMES if name in descendants("reranker") - {"best", "best_run", "evaluate"}]
    assert stage("retriever_2", capsys) == []


def test_times_are_in_no_artifact(tmp_path: Path) -> None:
    """The same run at another pace gives the same bytes."""

    def content(folder: Path) -> dict[str, bytes]:
        files = (path for path in (folder / ARTIFACTS).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    run_uses(USES, settings(), tmp_path / "one" / ARTIFACTS)
    time.sleep(0.2)
    for use in USES:
        note_seconds(use, settings()[use.name], tmp_path / "one" / ARTIFACTS, 1000.0)
    run_uses(USES, settings(), tmp_path / "two" / ARTIFACTS)
    assert content(tmp_path / "one") == content(tmp_path / "two")
