"""The small tasks of a Kubeflow run: the check of its parameters, and the report at its end.

How a run ended follows from the state that its last task receives for all tasks before it. Two enumerations are in use.
Kubeflow's backend passes on the state of ML Metadata (`Execution.State`), where a success is `COMPLETE`. kfp's local
runner and the documentation use the state of Kubeflow's API (`RuntimeState`), where it is `SUCCEEDED`.
docs/reference/kubeflow-facts.md describes how this was observed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import write_whole
from stillhouse.core.context import say
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.settings import label, monitoring_settings
from stillhouse.core.pages import as_text
from stillhouse.core.remote.address import redact
from stillhouse.core.terminal import show
from stillhouse.kubeflow.pods.in_pod import hand_over_figures, watched_task

TEXT = "recipe_text"
"""The argument of a run's first task with its recipe, as JSON: the only place in a pipeline that holds it."""


SUCCEEDED, FAILED, CANCELED, UNKNOWN = "succeeded", "failed", "canceled", "unknown"
"""How a run ended. `UNKNOWN` is neither a success nor a failure."""
ENDS = {
    **dict.fromkeys(("COMPLETE", "CACHED", "SUCCEEDED"), SUCCEEDED),
    "FAILED": FAILED,
    **dict.fromkeys(("CANCELED", "CANCELING", "CANCELLED"), CANCELED),
}
"""How a run ended by its state. Others leave it open: `RUNNING` stays if the run was terminated, and if a pod was
killed before it could report."""

FIRST_FAILED = "The last lines of the log of the first failed task in the graph say why."
LEFT_OPEN = (
    "Kubeflow left the state of the run's tasks at {state}, which does not say whether all succeeded or one failed. "
    "This happens when the run was terminated, and when a pod was killed before it could report. The graph shows which."
)
RESUMED = "Training continues from the last checkpoint when the run is started again with the same parameters."


def end_run(values: Mapping[str, Any]) -> None:
    """The last task of a run, which Kubeflow gives the status of the others.

    Writes how the run ended as Markdown, prints it and pushes it to Prometheus. If the state does not say it, no figure
    is written, and the gateway forgets how the previous run ended.
    """
    pipeline, run, status, metrics = values["pipeline"], values["run"], values["status"], values["metrics"]
    state = status.state or "UNKNOWN"  # Kubeflow omits fields with their default value
    end = ENDS.get(state, UNKNOWN)
    lines = [f"## {as_text(pipeline)}: {end}", "", f"Run {as_text(run)}."]
    if end == UNKNOWN:
        lines += ["", LEFT_OPEN.format(state=as_text(state))]
    if end == FAILED:
        lines += ["", FIRST_FAILED]
        lines += ["", f"> {as_text(redact(status.error_message))}"] if status.error_message else []
    if end in (FAILED, CANCELED):
        lines += ["", RESUMED]
    write_whole(Path(values["summary"].path), "\n".join(lines) + "\n")
    hand_over_figures(metrics, {} if end == UNKNOWN else {"succeeded": float(end == SUCCEEDED)})
    show(f"[end] {pipeline}, run {run}: {end} ({state})")
    # A run that a user canceled did not fail.
    if end != CANCELED:
        report_run(None if end == UNKNOWN else end == SUCCEEDED, say)


def report_run(succeeded: bool | None, log: Callable[[str], None]) -> None:
    """Push how the run of this pod ended, if the environment names a gateway.

    `succeeded` is None if unknown. Then only the time is pushed: it replaces the previous run's result at the gateway,
    so that an old failure does not trigger an alert and an old success does not silence one. As for steps, the run is
    not part of the group's name. Problems with metrics do not change the result of the run.
    """
    try:
        settings = monitoring_settings()
        if not settings.gateway:
            return
        from stillhouse.core.monitoring.exporter import push
        from stillhouse.core.monitoring.table import RUNS

        values = {"stillhouse_run_finished_timestamp_seconds": time.time()}
        if succeeded is not None:
            values["stillhouse_run_success"] = float(succeeded)
        group = {"pipeline": label(settings.pipeline)}
        push(settings.gateway, RUNS, values, group, log, {"run": label(settings.run)})
    except (InputError, ImportError) as error:
        log(f"the outcome of the run was not pushed: {error}")


def check_run(pipeline: str, values: Mapping[str, Any]) -> None:
    """Checks a run of `train` or `compare-objectives` before anything long, and writes what its tasks read.

    `values` has the task's arguments: the parameters, the recipe and the run's nodes as JSON, empty for a run on this
    machine. Ends the process with the exit code of bad input for a parameter out of range.
    """
    from stillhouse.kubeflow.pods.compare import shared_stages, write_comparison_plan
    from stillhouse.kubeflow.pods.run_parameters import FORM, SETTINGS, recipe_of_run
    from stillhouse.kubeflow.pods.stage import NODES, RECIPE, plan_digest, write_recipe
    from stillhouse.pipeline.graph import graph_of
    from stillhouse.pipeline.graph_steps import Stage, stages_of
    from stillhouse.pipeline.recipes import configs

    with watched_task("check"):
        known = {name: value for name, value in values.items() if name in (*FORM, SETTINGS)}
        recipe = recipe_of_run(json.loads(values[TEXT]), "the recipe", known)
        folder = Path(values[RECIPE].path)
        write_recipe(recipe, folder, values.get(NODES, ""))
        if pipeline == "train":
            settings = configs(recipe, "the recipe")
            planned: list[tuple[Stage, Mapping[str, Any]]] = [
                (stage, settings) for stage in stages_of(graph_of(recipe))
            ]
        else:
            planned = shared_stages(write_comparison_plan(values["sweep"], recipe, folder))
        for stage, of in planned:
            if output := values.get(f"plan_{stage.name}"):  # a pipeline may have only some of them
                Path(output).write_text(plan_digest(stage, of, values["run_id"]), encoding="utf-8")
