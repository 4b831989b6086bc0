"""Runs the pipeline on this machine, each task in a process of its own, as kfp's local runner does it."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path

from kfp import local

from pipelines.retriever import build_pipeline
from stillhouse.artifacts import read_manifest, whole_folder
from stillhouse.context import WORK_ROOT
from stillhouse.errors import InputError, ValidationFailed
from stillhouse.graph import find_uses
from stillhouse.steps.execute import VERDICT
from stillhouse.surfaces.recipes import Recipe

RESULT = "evaluation"
WORKSPACE = ".kubeflow"


class PipelineFailed(Exception):
    """A task of the pipeline failed; what it printed says why."""


def run_local(recipe: Recipe, where: str, folder: Path) -> Path:
    """Runs the pipeline of a recipe and returns the folder of its evaluation, `folder`/evaluation.

    The runner deletes its workspace at the end, so it gets one of its own, `folder`/.kubeflow, and the evaluation is
    copied out of it. Raises `InputError` for a bad recipe or when that workspace is in use, `ValidationFailed` when the
    corpus does not pass, `PipelineFailed` when a task fails for another reason.
    """
    pipeline = build_pipeline(recipe, where)
    workspace = (folder / WORKSPACE).resolve()
    if workspace.exists():
        raise InputError(f"{workspace} exists: another local run is going on, or was killed; remove it to go on")
    workspace.mkdir(parents=True)
    before = os.environ.get(WORK_ROOT)
    # Checkpoints lie outside the workspace, so that a run that was killed goes on from them.
    unfinished = folder / ".stillhouse"
    os.environ[WORK_ROOT] = before or str((unfinished / "work").resolve())
    try:
        local.init(
            runner=local.SubprocessRunner(use_venv=False),
            pipeline_root=str(workspace / "outputs"),
            workspace_root=str(workspace / "shared"),
            raise_on_error=True,
        )
        with warnings.catch_warnings():
            # The image's name need not say Python here: its tasks run in this environment.
            warnings.filterwarnings("ignore", category=RuntimeWarning, module="kfp.local")
            try:
                pipeline()
            except RuntimeError as error:
                _show_failed_validation(workspace / "outputs", folder)
                raise PipelineFailed(str(error)) from error
        with whole_folder(folder / RESULT) as staging:
            shutil.copytree(_evaluation(workspace / "outputs"), staging, dirs_exist_ok=True)
        if before is None:
            shutil.rmtree(unfinished, ignore_errors=True)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
        if before is None:
            del os.environ[WORK_ROOT]
        else:
            os.environ[WORK_ROOT] = before
    return folder / RESULT


def _show_failed_validation(outputs: Path, folder: Path) -> None:
    """Raises `ValidationFailed` when that is why the run ended, with the report kept in `folder`/validation.

    The runner does not tell a task's exit code, so the verdict is looked up.
    """
    for verdict in outputs.glob(f"*/validate/{VERDICT}"):
        if not read_manifest(verdict).facts["passed"]:
            with whole_folder(folder / VERDICT) as staging:
                shutil.copytree(verdict, staging, dirs_exist_ok=True)
            raise ValidationFailed(f"the corpus did not pass validation; open {folder / VERDICT / 'report.html'}")


def _evaluation(outputs: Path) -> Path:
    """The evaluation among the outputs of a run, which the runner keeps as <run>/<task>/<output>."""
    task = find_uses()["evaluate"].step.name
    found = sorted(outputs.glob(f"*/{task}/{RESULT}"))
    assert len(found) == 1, f"{outputs} should hold one evaluation, not {found}"
    return found[0]
