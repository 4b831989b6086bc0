"""What a run of `train` costs when it has nothing to do; writes run_overhead.md beside this.

    OMP_NUM_THREADS=1 python benchmarks/run_overhead.py --folder build/run_overhead [--rounds 3]

The recipe `micro`, each of whose steps is in the run cache, in two shapes: a Kubeflow task for each stage, as
Stillhouse runs it, and a Kubeflow task for each step. kfp's local runner starts a process for each task. A cluster
adds pods and drivers, whose seconds do not depend on what a task does.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from machine import machine
from notes import write_page

from stillhouse.context import WORK_ROOT
from stillhouse.kubernetes.pods.cached_step import RUN_CACHE
from stillhouse.kubernetes.pods.task import port_name
from stillhouse.pipelines import train
from stillhouse.pipelines.catalog import Request
from stillhouse.pipelines.local import run_pipeline
from stillhouse.workflow.graph import graph_of
from stillhouse.workflow.recipes import find_recipe, load_recipe
from stillhouse.workflow.tasks import Task, tasks_of
from stillhouse.workflow.uses import Use

STAGE, STEP = "a task a stage", "a task a step"


@dataclass
class Cost:
    """Tasks with steps, and in each round the seconds of the processor and of the clock that they took."""

    tasks: int
    processor: list[float]
    clock: list[float]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the run cache and the results go")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each shape, of which the median is shown")
    parser.add_argument("--recipe", default="micro")
    parser.add_argument("--page", type=Path, default=Path(__file__).with_suffix(".md"))
    arguments = parser.parse_args(argv)
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")  # kfp's local runner warns that it shows no display names
    os.environ[WORK_ROOT] = str(folder / "work")
    os.environ[RUN_CACHE] = str(folder / "cache")
    uses = graph_of(load_recipe(find_recipe(arguments.recipe)), arguments.recipe)
    shapes: dict[str, Callable[..., tuple[Task, ...]]] = {STAGE: tasks_of, STEP: task_a_step}
    costs = {name: Cost(len(shape(uses)), [], []) for name, shape in shapes.items()}
    run_once(arguments.recipe, tasks_of, folder)  # fills the run cache
    for _ in range(arguments.rounds):
        for name, shape in shapes.items():
            processor, clock = run_once(arguments.recipe, shape, folder)
            costs[name].processor.append(processor)
            costs[name].clock.append(clock)
            print(f"{name}: {processor:.1f} s of the processor, {clock:.1f} s", flush=True)
    write_page(arguments.page, report(costs, len(uses), arguments))
    return 0


def task_a_step(uses: Sequence[Use], rows: Mapping[str, str] | None = None, **wanted: Any) -> tuple[Task, ...]:
    return tasks_of(uses, {use.name: use.name for use in uses}, **wanted)


def run_once(recipe: str, shape: Callable[..., tuple[Task, ...]], folder: Path) -> tuple[float, float]:
    """Runs the pipeline in this shape: seconds of the processor that its tasks took, and of the clock."""
    result = folder / "result"
    shutil.rmtree(result, ignore_errors=True)
    result.mkdir()
    log = folder / "log"
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with mock.patch.object(train, "tasks_of", shape), log.open("w") as file, redirect_stdout(file):
        run_pipeline(Request("train", recipe).build(None), {}, result)
    if not list(result.glob(f"outputs/*/*/{port_name('evaluate/evaluation')}")):
        raise SystemExit(f"the run ended before its evaluation; see {log}")
    after, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock


def report(costs: Mapping[str, Cost], steps: int, arguments: argparse.Namespace) -> list[str]:
    command = "OMP_NUM_THREADS=1 python benchmarks/run_overhead.py --folder build/run_overhead"
    about = (
        f"`train` with the recipe `{arguments.recipe}`: {steps} steps, all in the run cache. Medians of "
        f"{arguments.rounds} runs. The seconds are those of the tasks' processes, without a cluster."
    )
    lines = [
        "# What a run with nothing to do costs",
        "",
        f"Command: `{command}`. {machine('kfp', 'dvc')}",
        "",
        about,
        "",
    ]
    lines += ["| shape | tasks | seconds of the processor | seconds | processor a task |", "|---|---|---|---|---|"]
    for name, cost in costs.items():
        processor, clock = statistics.median(cost.processor), statistics.median(cost.clock)
        lines.append(f"| {name} | {cost.tasks} | {processor:.1f} | {clock:.1f} | {processor / cost.tasks:.2f} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
