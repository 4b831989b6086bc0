"""Every step of the micro recipe is killed at random moments and run again: its outputs are those of a calm run.

`STILLHOUSE_KILLS` says how often a step is killed (`make test-kill` raises it). Moments are drawn from a seed that is
printed and that `STILLHOUSE_KILL_SEED` repeats; what the system makes of them differs all the same.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from stillhouse.graph import USES, Use
from stillhouse.surfaces.recipes import configs, find_recipe, load_recipe

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("STILLHOUSE_KILLS", "1"))
SEED = int(os.environ.get("STILLHOUSE_KILL_SEED") or random.SystemRandom().randrange(2**32))
FORKS = multiprocessing.get_context("forkserver")
"""Its children begin with everything imported, so that a kill meets the work and not the imports."""
FORKS.set_forkserver_preload(["torch", "transformers", "stillhouse.steps.registry", "stillhouse.training.loop"])


def run_use(name: str, root: Path, outputs: Path, work: Path) -> None:
    """Runs a use of the micro recipe on what lies below `root`; training keeps a checkpoint after every step."""
    os.environ["STILLHOUSE_WORK"], os.environ["STILLHOUSE_QUIET"] = str(work), "1"
    from stillhouse.graph import find_uses
    from stillhouse.steps.execute import execute
    from stillhouse.training import loop

    loop.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    use, recipe = find_uses()[name], find_recipe("micro")
    config = configs(load_recipe(recipe), str(recipe))[name]
    execute(use.step, config, use.input_paths(root), use.output_paths(outputs))


def begin(use: Use, root: Path, outputs: Path, work: Path) -> BaseProcess:
    process = FORKS.Process(target=run_use, args=(use.name, root, outputs, work))
    process.start()
    return process


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """The artifacts of a run that nobody disturbs, and the seconds that each use takes."""
    folder, seconds = tmp_path_factory.mktemp("calm"), {}
    for use in USES:
        started = time.monotonic()
        process = begin(use, folder / "artifacts", folder / "artifacts", folder / "work")
        process.join()
        assert process.exitcode == 0, use.name
        seconds[use.name] = time.monotonic() - started
    return folder / "artifacts", seconds


@pytest.mark.parametrize("use", USES, ids=lambda use: use.name)
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
