"""The tasks of the Kubeflow comparison: the stages that all variants share, then every variant with every seed.

A failed run is shown with its reason, and the others continue. Finished runs stay on the work volume until
another comparison begins. It is the same comparison as that of `stillhouse compare`, in the same folders.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import digest_json, whole_folder, write_whole, write_whole_json
from stillhouse.core.context import say, work_root
from stillhouse.core.environment import software
from stillhouse.core.errors import InputError
from stillhouse.core.lock import only_process
from stillhouse.core.own_files import copy_whole
from stillhouse.experiments.comparison.graph import EVALUATION
from stillhouse.experiments.comparison.plan import SHARED, Plan, make_plan
from stillhouse.experiments.comparison.run import Failure, Runner
from stillhouse.experiments.comparison.sweep import make_sweep
from stillhouse.kubeflow.pods.in_pod import hand_over_figures
from stillhouse.kubeflow.pods.process import one_line_errors
from stillhouse.kubeflow.pods.stage import (
    METRICS,
    PAGE,
    PARAMS,
    RECIPE,
    StageInPod,
    given_folders,
    nodes_of_task,
    refuse_failed_corpus,
    stage_digest,
    step_folders,
    step_in_pod,
)
from stillhouse.kubeflow.trainjob.parts import Part
from stillhouse.kubeflow.trainjob.settings import read_node_settings
from stillhouse.pipeline.graph import ARTIFACTS
from stillhouse.pipeline.graph_steps import GraphStep, Stage, stages_of
from stillhouse.pipeline.recipes import Recipe, load_recipe
from stillhouse.pipeline.steps.old_work import HANDED_OVER, remove_handed_over, remove_old_work

NAME = "comparison"
SWEEP = "sweep.json"
"""The file beside the recipe with the sweep as plain data."""


def write_comparison_plan(sweep: str, recipe: Recipe, folder: Path) -> Plan:
    """Writes what the tasks of a comparison read beside the recipe, and returns the plan. `sweep` is JSON."""
    write_whole_json(folder / SWEEP, json.loads(sweep))
    return read_plan(folder)


def read_plan(folder: Path) -> Plan:
    """The plan of a comparison from the folder of its recipe.

    The recipe has the sweep's own settings and the run's parameters in it, so the sweep must not set them again.
    """
    content = json.loads((folder / SWEEP).read_text(encoding="utf-8"))
    sweep = make_sweep(content.pop("name"), content | {"overrides": {}, "stages": {}}, "the pipeline's sweep")
    return make_plan(sweep, load_recipe(folder / PARAMS), RECIPE)


def shared_stages(plan: Plan) -> list[tuple[Stage, Mapping[str, Any]]]:
    """The stages that all runs of a comparison share, each with the settings of its steps."""
    return [
        (stage, {step.name: _config(plan, step) for step in stage.steps}) for stage in stages_of(shared_steps(plan))
    ]


def shared_steps(plan: Plan) -> list[GraphStep]:
    """The reference's steps, and those that every job uses unchanged and that no job has as its own."""
    found = {step.name: step for step in plan.reference.steps if step.name != EVALUATION}
    for job in plan.jobs:
        there = {name for name, place in job.places.items() if place == Path(SHARED)} - {EVALUATION}
        found |= {step.name: step for step in job.steps if step.name in there}
    order = list(dict.fromkeys(step.name for job in (plan.reference, *plan.jobs) for step in job.steps))
    last = [step for step in plan.reference.steps if step.name == EVALUATION]
    return sorted(found.values(), key=lambda step: order.index(step.name)) + last


def _config(plan: Plan, step: GraphStep) -> Any:
    """The settings of a shared step: from any job that shares it, else from the reference."""
    jobs = [job for job in plan.jobs if job.places.get(step.name) == Path(SHARED)]
    return (*jobs, plan.reference)[0].configs[step.name]


def run_shared(name: str, values: Mapping[str, Any]) -> str:
    """Runs one of the shared stages with its task's arguments, and returns the digest of what it hands on."""
    with one_line_errors():
        found = {stage.name: (stage, settings) for stage, settings in shared_stages(read_plan(_folder(values)))}
        return StageInPod(*found[name], values).run()


def run_variants(values: Mapping[str, Any]) -> None:
    """Runs every variant with every seed, here or on the pod's nodes, then writes one table and one page."""
    from stillhouse.experiments.comparison.page import PAGE as COMPARISON
    from stillhouse.experiments.comparison.results import write_comparison
    from stillhouse.kubeflow.trainjob.shares import run_parts

    with one_line_errors():
        plan, given = read_plan(_folder(values)), given_folders(values)
        refuse_failed_corpus(given.values())
        digests = {name: stage_digest(folder) for name, folder in given.items()}
        of = [plan.sweep.plain(), plan.recipe, digests, software()]
        root = (work_root() / f"{NAME}-{digest_json(of)[:20]}").absolute()
        with only_process(root, wait=say), nodes_of_task(values, NAME):
            if (root / HANDED_OVER).exists():  # it is run again, and so is what failed
                (root / HANDED_OVER).unlink()
                forget_failures(root)
            remove_old_work(root.parent, NAME, root.name)
            remove_handed_over(root.parent, (NAME,))
            for place in step_folders(given.values()):  # where a comparison has them; nodes read them there too
                copy_whole(place, root / SHARED / ARTIFACTS / place.name)
            shutil.copytree(_folder(values), root / RECIPE, dirs_exist_ok=True)
            if nodes := read_node_settings(os.environ, NAME, sys.argv):  # each of which does one run at a time
                module = "stillhouse.kubeflow.pods.compare"
                parts = [Part((str(root), str(number)), module=module) for number in range(len(plan.jobs))]
                run_parts(NAME, root.name, parts, nodes)
            failures: dict[tuple[str, int], Failure] = {}
            for number, job in enumerate(plan.jobs):
                if failure := do_job(plan, number, root):
                    failures[job.variant, job.seed] = failure
            if len(failures) == len(plan.jobs):
                forget_failures(root)  # there is nothing to hand over, so the next try begins again
                raise InputError(f"no run of the comparison succeeded: {next(iter(failures.values())).reason}")
            with whole_folder(Path(values["comparison"].path)) as staging:
                table = write_comparison(plan, failures, root, staging)
            shown = Path(values["comparison"].path) / COMPARISON
            write_whole(Path(values[PAGE].path), shown.read_text(encoding="utf-8"))
            figures = {f"{row.variant.name}/{name}": of.mean for row in table.done for name, of in row.figures.items()}
            hand_over_figures(values[METRICS], figures)
            write_whole(root / HANDED_OVER, NAME)


def do_job(plan: Plan, number: int, root: Path) -> Failure | None:
    """Does one run unless an earlier try has, and returns why it failed, or None.

    Raises the error of a full disk. Another failure is recorded, and the run is not tried again.
    """
    job, record = plan.jobs[number], root / "jobs" / f"{number:04}.json"
    if not record.is_file():
        shared = {root / SHARED / ARTIFACTS / step.name for step in shared_steps(plan)}
        failure = Runner(root, say, run_step=step_in_pod, done=shared).run_job(job)
        if failure:
            say(f"[{NAME}] {job.name} failed at {failure.step}: {failure.reason}")
        write_whole_json(record, asdict(failure) if failure else {})
    content = json.loads(record.read_text(encoding="utf-8"))
    return Failure(**content) if content else None


def forget_failures(root: Path) -> None:
    """Removes the records of failed runs, so that they are tried again."""
    for record in (root / "jobs").glob("*.json"):
        if json.loads(record.read_text(encoding="utf-8")):
            record.unlink()


def _folder(values: Mapping[str, Any]) -> Path:
    return Path(values[RECIPE].path)


def main(argv: Sequence[str]) -> int:
    """One run on a node: the comparison's folder, and the run's number."""
    root, number = argv
    with one_line_errors():
        do_job(read_plan(Path(root) / RECIPE), int(number), Path(root))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
