"""Every step is killed at random moments and run again, on what the micro recipe makes: its outputs are a calm run's.

`STILLHOUSE_KILLS` says how often a step is killed (`make test-kill` raises it). Moments are drawn from a seed that is
printed and that `STILLHOUSE_KILL_SEED` repeats; what the system makes of them differs all the same.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from micro_uses import RUN_USES, TOO_FAST, begin

from stillhouse.graph import Use

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("STILLHOUSE_KILLS", "1"))
SEED = int(os.environ.get("STILLHOUSE_KILL_SEED") or random.SystemRandom().randrange(2**32))


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def every_use() -> Iterator[object]:
    """All uses; of several of one step all but the first are for `make test-kill`."""
    seen: set[str] = set()
    for use in RUN_USES:
        marks = [pytest.mark.long] if use.step.name in seen else []
        seen.add(use.step.name)
        yield pytest.param(use, marks=marks, id=use.name)


@pytest.mark.parametrize("name", TOO_FAST)
def test_a_training_passes_its_best(name: str, calm: tuple[Path, dict[str, float]]) -> None:
    root, _ = calm
    loss = pd.read_csv(root / name / "curves" / "curves.csv")["heldout_loss"]
    assert loss.idxmin() < len(loss) - 1, loss


@pytest.mark.parametrize("use", every_use())
def test_a_killed_step_goes_on_to_the_same_bytes(use: Use, calm: tuple[Path, dict[str, float]], tmp_path: Path) -> None:
    root, seconds = calm
    chance = random.Random(f"{SEED} {use.name}")
    outputs, work = tmp_path / "artifacts", tmp_path / "work"
    moments: list[float] = []
    left = seconds[use.name]
    for _ in range(20 * KILLS):
        if len(moments) == KILLS:
            break
        moment = chance.uniform(0, left)
        process = begin(use, root, outputs, work)
        process.join(moment)
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            moments.append(moment)
        else:  # it went on from where the last one had come to, and was done before
            left = moment
        for path in use.output_paths(outputs).values():  # there is none, or it is whole
            assert not path.exists() or content(path) == content(root / path.relative_to(outputs))
    print(f"seed {SEED}: killed after {', '.join(f'{moment:.3f}' for moment in moments)} s")
    assert len(moments) == KILLS, "it was done before each kill"
    process = begin(use, root, outputs, work)
    process.join()
    assert process.exitcode == 0
    for path in use.output_paths(outputs).values():
        assert content(path) == content(root / path.relative_to(outputs)), path.name
    assert not list(outputs.rglob(".*")), "leftovers"
