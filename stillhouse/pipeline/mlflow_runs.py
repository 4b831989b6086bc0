"""A run in MLflow, beside DVC and Kubeflow: a parent run, below it one for each stage that ran.

    MLFLOW_TRACKING_URI=http://mlflow:5000 stillhouse run

A stage's run has its settings, figures and pages; the parent has the evaluation's figures and report. Stages with
the settings of one run share a parent, in whatever process or pod they run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.settings import RUN
from stillhouse.core.report import Report
from stillhouse.core.terminal import warn
from stillhouse.pipeline.graph_steps import GraphStep

ADDRESS, EXPERIMENT = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"
RECIPE, PARENT = "stillhouse.recipe", "mlflow.parentRunId"
NOT_ALLOWED = re.compile(r"[^\w\-. :/]", re.ASCII)
"""What MLflow refuses in the name of a figure."""


def logged(name: str, digest: str) -> Callable[[GraphStep, Any, Report, Path], None]:
    """What logs a finished step of a run, given the step's settings, report and root folder.

    `name` is the run's, and `digest` that of its settings. It does nothing without `MLFLOW_TRACKING_URI`. A server that
    does not answer costs a line in the log, never the run. Raises `InputError` if mlflow is not installed.
    """
    if not os.environ.get(ADDRESS):
        return lambda step, config, report, root: None
    try:
        import mlflow
    except ImportError as error:
        raise InputError(f"{ADDRESS} is set: run `pip install 'stillhouse[mlflow]'`, or unset it") from error
    stages: dict[str, str] = {}
    client = mlflow.MlflowClient  # it leaves a caller's own run and experiment as they are

    @cache  # an error is not kept, so the next step tries again
    def parent() -> str:
        tags = {RECIPE: digest[:16]}
        found = client().search_runs([experiment()], f"tags.`{RECIPE}` = '{tags[RECIPE]}'")
        return found[0].info.run_id if found else _new(os.environ.get(RUN) or name, tags)

    @cache
    def experiment() -> str:
        name = os.environ.get(EXPERIMENT, "stillhouse")
        with suppress(mlflow.MlflowException):  # it exists, or another pod makes it
            client().create_experiment(name)
        if (known := client().get_experiment_by_name(name)) is None:
            raise OSError(f"there is no experiment {name}")
        return str(known.experiment_id)

    def _new(name: str, tags: dict[str, str]) -> str:
        return str(client().create_run(experiment(), tags=tags, run_name=name).info.run_id)

    def log(step: GraphStep, config: Any, report: Report, root: Path) -> None:
        try:
            stage = step.stage or step.name
            if stage not in stages:
                stages[stage] = _new(stage, {PARENT: parent()})
            settings = {f"{step.name}.{name}": value for name, value in asdict(config).items()}
            mlflow.log_params(settings, run_id=stages[stage])
            _figures(stages[stage], step, report, root, f"{step.name}.")
            if step.kind == "evaluate":
                _figures(parent(), step, report, root, "")
            for run in (stages[stage], parent()):
                client().set_terminated(run)
        except (mlflow.MlflowException, OSError) as error:
            warn(f"stillhouse: {ADDRESS}: {step.name} is not logged: {error}")

    def _figures(run: str, step: GraphStep, report: Report, root: Path, prefix: str) -> None:
        named = {NOT_ALLOWED.sub("_", prefix + name.replace("@", "_at_")): of for name, of in report.metrics.items()}
        mlflow.log_metrics(named, run_id=run)
        if report.html:
            first = next(iter(step.output_paths(root).values()))
            mlflow.log_artifact(str(first / report.html), step.name, run_id=run)

    return log
