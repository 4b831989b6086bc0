"""Runs the steps of a recipe in this process: for `stillhouse run` and the Python function `run`."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import digest_json
from stillhouse.core.config import refuse_unknown
from stillhouse.core.context import quiet, say
from stillhouse.core.lock import only_process
from stillhouse.core.monitoring.activity import doing, in_words, watched
from stillhouse.pipeline.graph_steps import ARTIFACTS, GraphStep, needed, stages_of
from stillhouse.pipeline.in_process import refuse_foreign_outputs, run_steps, still_to_do
from stillhouse.pipeline.key_names import keys_in_errors
from stillhouse.pipeline.mlflow_runs import logged
from stillhouse.pipeline.run_progress import outlook


def chosen_steps(steps: Sequence[GraphStep], until: str | None) -> Sequence[GraphStep]:
    """The step `until` and everything it needs, or all without it. Raises `InputError` if it does not exist."""
    if not until:
        return steps
    refuse_unknown(until, [step.name for step in steps], "--until: there is no step")
    return needed(steps, [until])


def steps_of_stage(steps: Sequence[GraphStep], name: str) -> Sequence[GraphStep]:
    """The steps of one stage. Raises `InputError` if the run has no such stage."""
    stages = {stage.name: stage.steps for stage in stages_of(steps)}
    refuse_unknown(name, stages, "the run has no stage")
    return stages[name]


def run_recipe(
    steps: Sequence[GraphStep],
    settings: Mapping[str, Any],
    root: Path,
    recipe: Path,
    typed: Container[str] = (),
    whole: Sequence[GraphStep] = (),
) -> None:
    """Runs steps in order below `root`, skips those that are up to date, and logs the time left.

    The log is never silent for ten seconds, between steps either.

    `settings` maps every step to its config. `whole` are the steps of the whole run, if `steps` are one of its stages:
    the log then counts these. Errors name the keys of `recipe`, except settings in `typed`, which the user gave as
    flags. Raises what the steps raise, and, before any work, `InputError` if an output would replace something that no
    step wrote.
    """
    refuse_foreign_outputs(steps, root)
    with only_process(root), watched("run", quiet()):
        started = time.monotonic()
        if not whole:
            with doing("checking which steps are up to date"):
                todo = still_to_do(steps, settings, root)
            say(outlook(todo, len(steps), settings, root))
        digest = digest_json({name: repr(config) for name, config in settings.items()})
        reports = run_steps(
            steps,
            settings,
            root,
            say,
            lambda step: keys_in_errors(step.spec, recipe, step.section, typed, step.name),
            whole,
            done=logged(recipe.resolve().parent.name, digest),
        )
        skipped = sum(report is None for report in reports.values())
        say(f"{len(steps)} steps in {in_words(time.monotonic() - started)}, {skipped} of them were up to date")
        for step in steps:
            if step.kind == "generate-queries":
                say(f"questions that were kept and dropped: {root / step.name / 'queries' / 'questions.html'}")
        there = "" if root == ARTIFACTS else f" in {root.parent}"
        if {"best", "evaluate"} <= {step.name for step in steps}:
            say(f"report: {root / 'evaluate/evaluation/report.html'}; `stillhouse search`{there} asks the winner")
