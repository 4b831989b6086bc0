"""The work folder of the task `zero-shot`: which runs share it, and that they take turns."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stillhouse.kubernetes.pods import zero_shot
from stillhouse.kubernetes.pods.zero_shot import Config, measure_corpus


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Record the work folder of each run. A run takes 0.3 s, so that a second run in the same folder is noticed."""
    seen: list[Path] = []
    running: set[Path] = set()

    def run(plan: Any, work: Path, *given: Any) -> dict[str, Any]:
        assert work not in running, "two runs at a time in a folder"
        running.add(work)
        threading.Event().wait(0.3)
        seen.append(work)
        running.discard(work)
        return {"toy": SimpleNamespace(use="index", reason="a broken index")}

    monkeypatch.setattr(zero_shot, "checked_plan", lambda arguments: (SimpleNamespace(runs={"toy": {}}), None))
    monkeypatch.setattr(zero_shot, "run_plan", run)
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    return seen


def test_runs_of_the_same_settings_take_turns(used: list[Path], tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def measure(number: int) -> None:
        try:
            measure_corpus("corpus", Config(), tmp_path / f"handed-{number}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=measure, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(used) == 3
