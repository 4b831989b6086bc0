"""Runs a pipeline on this machine, each task in a process of its own, as kfp's local runner does it."""

from __future__ import annotations

import builtins
import logging
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kfp import local

from stillhouse.artifacts import MANIFEST, read_manifest, refuse_foreign, whole_folder, write_manifest
from stillhouse.context import WORK_ROOT
from stillhouse.errors import InputError, ValidationFailed
from stillhouse.kubernetes.pods.task import port_name
from stillhouse.own_files import make_folder
from stillhouse.pipelines.catalog import RESULTS, Request, Result
from stillhouse.steps.execute import VERDICT
from stillhouse.workflow.tasks import PREPARE
from stillhouse.workflow.tasks import VERDICT as GIVEN

WORKSPACE = ".kubeflow"
WORK = Path(".stillhouse") / "run-local"
"""Where unfinished work is kept: beside that of single steps, which is not this run's to remove."""


class PipelineFailed(Exception):
    """A task of the pipeline failed; what it printed says why."""


def run_local(request: Request, values: Mapping[str, Any], folder: Path) -> Path:
    """Runs a pipeline with these parameters and returns the folder of its result, inside `folder`.

    The runner deletes its workspace at the end, so it gets one of its own, `folder`/.kubeflow, and the result is
    copied out of it. Raises `InputError` for a bad recipe or parameter, when that workspace is in use, and where the
    result would replace something that no step wrote; `ValidationFailed` when the corpus does not pass,
    `PipelineFailed` when a task fails for another reason.
    """
    request.check(values)
    result = RESULTS[request.pipeline]
    for name in (result.output, VERDICT) if result.validated else (result.output,):
        refuse_foreign(folder / name, f"pipeline {request.pipeline}")
    pipeline = request.build(None)
    workspace = (folder / WORKSPACE).resolve()
    if os.path.lexists(workspace):
        raise InputError(f"{workspace} exists: another local run is going on, or was killed; remove it to go on")
    make_folder(workspace)
    try:
        # Checkpoints lie outside the workspace, so that a run that was killed goes on from them.
        with _work_root(folder / WORK):
            run_pipeline(pipeline, values, workspace)
            outputs = workspace / "outputs"
            found = find_result(outputs, result)
            if found is None:
                _show_failed_validation(outputs, folder)
                raise PipelineFailed(f"no task {result.components[-1]} was done")
            with whole_folder(folder / result.output) as staging:
                shutil.copytree(found, staging, dirs_exist_ok=True)
                if not (staging / MANIFEST).is_file():
                    write_manifest(staging, f"pipeline {request.pipeline}", {}, {}, {})
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    return folder / result.output


def run_pipeline(pipeline: Any, values: Mapping[str, Any], workspace: Path) -> None:
    """Runs a pipeline with kfp's local runner; its outputs lie below `workspace`/outputs, also when a task fails."""
    local.init(
        runner=local.SubprocessRunner(use_venv=False),
        pipeline_root=str(workspace / "outputs"),
        workspace_root=str(workspace / "shared"),
        raise_on_error=False,
    )
    with _own_output(), warnings.catch_warnings():
        # The image's name need not say Python here: its tasks run in this environment.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="kfp.local")
        try:
            pipeline(**values)
        except RuntimeError as error:
            raise PipelineFailed(str(error)) from error


@contextmanager
def _own_output() -> Iterator[None]:
    """Puts `print` and the root logger back as they were.

    kfp's runner replaces both for each task. Of tasks in several threads, as of a loop, the last to end puts back what
    another task had put there, and all that this process prints later would be indented.
    """
    printing, logger = builtins.print, logging.getLogger()
    level, handlers = logger.level, list(logger.handlers)
    try:
        yield
    finally:
        builtins.print = printing
        logger.setLevel(level)
        logger.handlers[:] = handlers


@contextmanager
def _work_root(unfinished: Path) -> Iterator[None]:
    """Keeps unfinished work in a folder of this run, unless the environment names another; removed after a success."""
    if os.environ.get(WORK_ROOT):
        yield
        return
    os.environ[WORK_ROOT] = str(unfinished.resolve())
    try:
        yield
        shutil.rmtree(unfinished, ignore_errors=True)
    finally:
        del os.environ[WORK_ROOT]


def _show_failed_validation(outputs: Path, folder: Path) -> None:
    """Raises `ValidationFailed` when that is why the run ended, with the report kept in `folder`/validation.

    The runner does not give a task's exit code, so the verdict is looked up.
    """
    for verdict in outputs.glob(f"**/{PREPARE}/{port_name(GIVEN)}"):
        if not read_manifest(verdict).facts["passed"]:
            with whole_folder(folder / VERDICT) as staging:
                shutil.copytree(verdict, staging, dirs_exist_ok=True)
            raise ValidationFailed(f"the corpus did not pass validation; open {folder / VERDICT / 'report.html'}")


def find_result(outputs: Path, result: Result) -> Path | None:
    """The result among the outputs of a run, which the runner keeps as <run>/…/<task>/<output>."""
    for component in result.components:
        found = sorted(path for path in outputs.glob(f"**/{component}*/{result.folder}") if any(path.iterdir()))
        if found:
            return found[-1]
    return None
