"""The small tasks of a Kubeflow run: the check of its parameters and the report at its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillhouse.artifacts import write_whole
from stillhouse.context import say
from stillhouse.kubernetes.pods.component import watched_task
from stillhouse.kubernetes.pods.run_state import RunEnd, run_end
from stillhouse.markdown import as_text
from stillhouse.monitoring.run_end import report_run
from stillhouse.remote.address import redact
from stillhouse.steps.execute import write_metrics
from stillhouse.terminal import show

FIRST_FAILED = "The first failed task in the graph says why, in the last lines of its log."
LEFT_OPEN = (
    "Kubeflow left the state of the run's tasks at {state}, which does not say whether all succeeded or one failed. "
    "This happens when a condition skipped tasks, and also when a pod was killed. The graph shows which: it marks a "
    "failed task."
)
RESUMED = "Training continues from the last checkpoint when the run is started again with the same parameters."


def report_end(
    pipeline: str, run: str, state: str | None, error: str | None, summary: str, metrics: str
) -> float | None:
    """Writes how a run ended as Markdown, prints it and pushes it to Prometheus.

    Returns 1.0 for a success, 0.0 for a run that failed or was canceled, and None if `state` leaves it open. In that
    case no figure is written, and the gateway forgets how the previous run ended.
    """
    state = state or "UNKNOWN"  # Kubeflow omits fields with their default value
    end = run_end(state)
    lines = [f"## {as_text(pipeline)}: {end.value}", "", f"Run {as_text(run)}."]
    if end is RunEnd.UNKNOWN:
        lines += ["", LEFT_OPEN.format(state=as_text(state))]
    if end is RunEnd.FAILED:
        lines += ["", FIRST_FAILED]
        lines += ["", f"> {as_text(redact(error))}"] if error else []
    if end in (RunEnd.FAILED, RunEnd.CANCELED):
        lines += ["", RESUMED]
    write_whole(Path(summary), "\n".join(lines) + "\n")
    succeeded = None if end is RunEnd.UNKNOWN else float(end is RunEnd.SUCCEEDED)
    write_metrics(Path(metrics), {} if succeeded is None else {"succeeded": succeeded})
    show(f"[end] {pipeline}, run {run}: {end.value} ({state})")
    # A run that a user canceled did not fail.
    if end is not RunEnd.CANCELED:
        report_run(None if succeeded is None else bool(succeeded), say)
    return succeeded


def refuse_parameters(pipeline: str, values: Mapping[str, Any], recipe: str = "") -> None:
    """Ends the process with the exit code of bad input if a parameter of a run is out of range.

    `recipe` is the recipe of a whole run as JSON, which its parameters must fit; "" = any.
    """
    from stillhouse.kubernetes.pods.run_parameters import SETTINGS, TABLES, check_parameters, check_train

    with watched_task("check"):
        known = {name: value for name, value in values.items() if name in (*TABLES[pipeline], SETTINGS)}
        if recipe:
            check_train(json.loads(recipe), "the recipe", known)
        else:
            check_parameters(pipeline, known)
