"""Runs the steps of a recipe in this process: for `stillhouse run` and the Python function `run`."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.config import refuse_unknown
from stillhouse.core.context import quiet, say
from stillhouse.core.lock import only_process
from stillhouse.core.monitoring.activity import doing, in_words, watched
from stillhouse.pipeline.in_process import refuse_foreign_outputs, run_uses, still_to_do
from stillhouse.pipeline.key_names import keys_in_errors
from stillhouse.pipeline.mlflow_runs import logged
from stillhouse.pipeline.run_progress import outlook
from stillhouse.pipeline.uses import Use, needed, stages_of


def chosen_uses(uses: Sequence[Use], until: str | None) -> Sequence[Use]:
    """The step `until` and everything it needs, or all without it. Raises `InputError` if it does not exist."""
    if not until:
        return uses
    refuse_unknown(until, [use.name for use in uses], "--until: there is no step")
    return needed(uses, [until])


def uses_of_stage(uses: Sequence[Use], name: str) -> Sequence[Use]:
    """The steps of one stage. Raises `InputError` if the run has no such stage."""
    stages = {stage.name: stage.uses for stage in stages_of(uses)}
    refuse_unknown(name, stages, "the run has no stage")
    return stages[name]


def run_recipe(
    uses: Sequence[Use],
    settings: Mapping[str, Any],
    root: Path,
    recipe: Path,
    typed: Container[str] = (),
    whole: Sequence[Use] = (),
) -> None:
    """Runs uses in order below `root`, skips those that are up to date, and logs the time left.

    The log is never silent for ten seconds, between steps either.

    `settings` maps every use to its config. `whole` are the uses of the whole run, if `uses` are one of its stages: the
    log then counts these. Errors name the keys of `recipe`, except settings in `typed`, which the user gave as flags.
    Raises what the steps raise, and, before any work, `InputError` if an output would replace something that no step
    wrote.
    """
    refuse_foreign_outputs(uses, root)
    with only_process(root), watched("run", quiet()):
        started = time.monotonic()
        if not whole:
            with doing("checking which steps are up to date"):
                todo = still_to_do(uses, settings, root)
            say(outlook(todo, len(uses), settings, root))
        reports = run_uses(
            uses,
            settings,
            root,
            say,
            lambda use: keys_in_errors(use.step, recipe, use.section, typed, use.name),
            whole,
            done=logged(recipe),
        )
        skipped = sum(report is None for report in reports.values())
        say(f"{len(uses)} steps in {in_words(time.monotonic() - started)}, {skipped} of them were up to date")
        if {"best", "evaluate"} <= {use.name for use in uses}:
            say(f"report: {root / 'evaluate' / 'evaluation' / 'report.html'}; `stillhouse search` asks the winner")
