"""The benchmark of a run with nothing to do: it runs both shapes, and its table holds their medians."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhouse.workflow.graph import graph_of
from stillhouse.workflow.recipes import find_recipe, load_recipe

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_a_task_a_step_is_compared_with_a_task_a_stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("STILLHOUSE_WORK", "")
    monkeypatch.setenv("STILLHOUSE_RUN_CACHE", "")
    import run_overhead

    uses = graph_of(load_recipe(find_recipe("micro")), "micro")
    seconds = iter([(90.0, 90.0), (12.0, 9.0), (64.0, 32.0), (18.0, 7.0), (32.0, 31.0), (12.0, 8.0), (32.0, 33.0)])
    ran: list[int] = []

    def run_once(recipe: str, shape: Callable[..., Any], folder: Path) -> tuple[float, float]:
        tasks = shape(uses, wanted={"distilled/retriever"})
        ran.append(len(tasks))
        assert sorted(use.name for task in tasks for use in task.uses) == sorted(use.name for use in uses)
        return next(seconds)

    monkeypatch.setattr(run_overhead, "run_once", run_once)
    page = tmp_path / "page.md"
    assert run_overhead.main(["--folder", str(tmp_path / "folder"), "--page", str(page)]) == 0
    assert ran == [6, 6, len(uses), 6, len(uses), 6, len(uses)]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.read_text().splitlines()
        if line.startswith("| a task")
    ]
    each = f"{32 / len(uses):.2f}"
    assert rows == [
        ["a task a stage", "6", "12.0", "8.0", "2.00"],
        ["a task a step", str(len(uses)), "32.0", "32.0", each],
    ]
