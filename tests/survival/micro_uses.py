"""Uses of the micro recipe, each run in a process of its own that can be killed."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.process import BaseProcess
from pathlib import Path

from stillhouse.graph import Use
from stillhouse.surfaces.recipes import configs, find_recipe, load_recipe

FORKS = multiprocessing.get_context("forkserver")
"""Its children begin with everything imported, so that a kill meets the work and not the imports."""
FORKS.set_forkserver_preload(
    [
        "pandas",
        "transformers.models.bert.modeling_bert",  # torch, and all of transformers that an encoder needs
        "stillhouse.retrieval.source",
        "stillhouse.steps.registry",
        "stillhouse.training.loop",
    ]
)


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
