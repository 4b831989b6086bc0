"""Every step is killed at random moments and run again on the micro recipe: its outputs equal an undisturbed run's."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from kills import land_kills
from micro_uses import RUN_USES, TOO_FAST, begin

from stillhouse.pipeline.graph import Use

pytestmark = pytest.mark.slow


def content(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, including hidden ones."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def every_use() -> Iterator[object]:
    """All uses. If a step has several, only `make test-kill` runs the ones after the first."""
    seen: set[str] = set()
    for use in RUN_USES:
        marks = [pytest.mark.long] if use.step.name in seen else []
        seen.add(use.step.name)
        yield pytest.param(use, marks=marks, id=use.name)


@pytest.mark.parametrize("name", TOO_FAST)
def test_a_training_goes_past_its_lowest_loss(name: str, calm: tuple[Path, dict[str, float]]) -> None:
    root, _ = calm
    loss = pd.read_csv(root / name / "curves" / "curves.csv")["heldout_loss"]
    assert loss.idxmin() < len(loss) - 1, loss


@pytest.mark.parametrize("use", every_use())
def test_a_killed_step_resumes_to_the_same_bytes(use: Use, calm: tuple[Path, dict[str, float]], tmp_path: Path) -> None:
    root, seconds = calm
    outputs, work = tmp_path / "artifacts", tmp_path / "work"

    def kill(moment: float) -> bool:
        process = begin(use, root, outputs, work)
        process.join(moment)
        process.kill()
        process.join()
        for path in use.output_paths(outputs).values():  # it is absent or complete
            assert not path.exists() or content(path) == content(root / path.relative_to(outputs))
        return process.exitcode == -signal.SIGKILL

    land_kills(use.name, seconds[use.name], kill)
    process = begin(use, root, outputs, work)
    process.join()
    assert process.exitcode == 0
    for path in use.output_paths(outputs).values():
        assert content(path) == content(root / path.relative_to(outputs)), path.name
    assert not list(outputs.rglob(".*")), "leftovers"
