"""Every step is killed at random moments and run again, on what the micro recipe makes: its outputs are a calm run's.

`STILLHOUSE_KILLS` says how often a step is killed (`make test-kill` raises it). Moments are drawn from a seed that is
printed and that `STILLHOUSE_KILL_SEED` repeats; what the system makes of them differs all the same.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from micro_uses import RUN_USES, begin

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


@pytest.mark.parametrize("use", every_use())
def test_a_killed_step_goes_on_to_the_same_bytes(use: Use, calm: tuple[Path, dict[str, float]], tmp_path: Path) -> None:
    root, seconds = calm
    chance = random.Random(f"{SEED} {use.name}")
    moments = [chance.uniform(0, seconds[use.name]) for _ in range(KILLS)]
    print(f"seed {SEED}: killed after {', '.join(f'{moment:.3f}' for moment in moments)} s")
    outputs, work = tmp_path / "artifacts", tmp_path / "work"
    for moment in moments:
        process = begin(use, root, outputs, work)
        process.join(moment)
        process.kill()
        process.join()
        for path in use.output_paths(outputs).values():  # there is none, or it is whole
            assert not path.exists() or content(path) == content(root / path.relative_to(outputs))
    process = begin(use, root, outputs, work)
    process.join()
    assert process.exitcode == 0
    for path in use.output_paths(outputs).values():
        assert content(path) == content(root / path.relative_to(outputs)), path.name
    assert not list(outputs.rglob(".*")), "leftovers"
