"""Every step is killed at random moments and run again on the micro recipe: its outputs equal an undisturbed run's."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from kills import land_kills
from micro_steps import RUN_STEPS, TOO_FAST, begin

from stillhouse.pipeline.graph import GraphStep

pytestmark = pytest.mark.slow


def content(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, including hidden ones."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def every_step() -> Iterator[object]:
    """All steps. If a step has several, only `make test-kill` runs the ones after the first."""
    seen: set[str] = set()
    for step in RUN_STEPS:
        marks = [pytest.mark.long] if step.spec.name in seen else []
        seen.add(step.spec.name)
        yield pytest.param(step, marks=marks, id=step.name)


@pytest.mark.parametrize("name", TOO_FAST)
def test_a_training_goes_past_its_lowest_loss(name: str, calm: tuple[Path, dict[str, float]]) -> None:
    root, _ = calm
    loss = pd.read_csv(root / name / "curves" / "curves.csv")["heldout_loss"]
    assert loss.idxmin() < len(loss) - 1, loss


@pytest.mark.parametrize("step", every_step())
def test_a_killed_step_resumes_to_the_same_bytes(
    step: GraphStep, calm: tuple[Path, dict[str, float]], tmp_path: Path
) -> None:
    root, seconds = calm
    outputs, work = tmp_path / "artifacts", tmp_path / "work"

    def kill(moment: float) -> bool:
        process = begin(step, root, outputs, work)
        process.join(moment)
        process.kill()
        process.join()
        for path in step.output_paths(outputs).values():  # it is absent or complete
            assert not path.exists() or content(path) == content(root / path.relative_to(outputs))
        return process.exitcode == -signal.SIGKILL

    land_kills(step.name, seconds[step.name], kill)
    process = begin(step, root, outputs, work)
    process.join()
    assert process.exitcode == 0
    for path in step.output_paths(outputs).values():
        assert content(path) == content(root / path.relative_to(outputs)), path.name
    assert not list(outputs.rglob(".*")), "leftovers"
