"""Runs a pipeline on this machine with kfp's local runner, each task in its own process."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from kfp import local

from stillhouse.core.artifacts import (
    MANIFEST,
    read_manifest,
    refuse_foreign,
    whole_folder,
    whole_folders,
    write_manifest,
)
from stillhouse.core.context import WORK_ROOT, answers_root
from stillhouse.core.environment import environment_variables
from stillhouse.core.errors import InputError, ValidationFailed
from stillhouse.core.lock import only_process
from stillhouse.core.own_files import link_or_copy, make_folder
from stillhouse.kubeflow.pipelines.catalog import RESULTS, Request, Result
from stillhouse.kubeflow.pods.stage import FOLDER
from stillhouse.pipeline.graph import GATE
from stillhouse.pipeline.graph_steps import ARTIFACTS
from stillhouse.pipeline.steps.execute import VERDICT

WORKSPACE = ".kubeflow"
WORK = Path(".stillhouse") / "run-local"
"""The folder for unfinished work, next to that of single steps, which this run must not remove."""


class PipelineFailed(Exception):
    """A task of the pipeline failed; its output says why."""


def run_local(request: Request, values: Mapping[str, Any], folder: Path) -> Path:
    """Runs a pipeline with these parameters and returns the folder of its result, inside `folder`.

    The winner of a run and its corpus go to `folder`/artifacts, as in a workspace.

    The runner deletes its workspace at the end, so it gets a separate one, `folder`/.kubeflow, and all that is kept is
    copied out of it. Raises `InputError` for a bad recipe or parameter, if that workspace is in use, and if something
    would be replaced that no step wrote; `ValidationFailed` if the corpus does not pass; `PipelineFailed` if a task
    fails for another reason.
    """
    request.check(values)
    result, kept = RESULTS[request.pipeline], request.kept()
    names = [result.output, *([VERDICT] if result.validated else []), *(str(ARTIFACTS / source) for source in kept)]
    for name in names:
        refuse_foreign(folder / name, f"pipeline {request.pipeline}")
    pipeline = request.build(None)
    workspace = (folder / WORKSPACE).resolve()
    if os.path.lexists(workspace):
        raise InputError(f"{workspace} exists: another local run is in progress or was killed; remove it to continue")
    make_folder(workspace)
    try:
        # Checkpoints are outside the workspace, so that a killed run continues from them.
        # `stillhouse run` may not write to the same artifacts meanwhile.
        with only_process(folder / ARTIFACTS) if kept else nullcontext(), _work_root(folder / WORK):
            run_pipeline(pipeline, values, workspace)
            outputs = workspace / "outputs"
            found = find_result(outputs, result)
            if found is None:
                _show_failed_validation(outputs, folder)
                raise PipelineFailed(f"the task {result.components[-1]} did not run")
            made = {folder / result.output: found}
            made |= {folder / ARTIFACTS / source: find_output(outputs, source) for source in kept}
            with whole_folders(list(made)) as stagings:
                for there, staging in zip(made.values(), stagings):
                    shutil.copytree(there, staging, dirs_exist_ok=True, copy_function=link_or_copy)
                if not (stagings[0] / MANIFEST).is_file():
                    write_manifest(stagings[0], f"pipeline {request.pipeline}", {}, {}, {})
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    return folder / result.output


def run_pipeline(pipeline: Any, values: Mapping[str, Any], workspace: Path) -> None:
    """Runs a pipeline with kfp's local runner; outputs are below `workspace`/outputs, even if a task fails."""
    local.init(
        runner=local.SubprocessRunner(use_venv=False),
        pipeline_root=str(workspace / "outputs"),
        workspace_root=str(workspace / "shared"),
        raise_on_error=False,
    )
    with warnings.catch_warnings():
        # kfp warns about image names without "python", but the tasks run in this environment.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="kfp.local")
        try:
            pipeline(**values)
        except RuntimeError as error:
            raise PipelineFailed(str(error)) from error


@contextmanager
def _work_root(unfinished: Path) -> Iterator[None]:
    """Keeps unfinished work in this run's folder unless the environment names another; removes it after a success.

    The answers of language models stay, as the next run would pay for them again.
    """
    if os.environ.get(WORK_ROOT):
        yield
        return
    with environment_variables({WORK_ROOT: str(unfinished.resolve())}):
        yield
        _remove_but(answers_root(), unfinished.resolve())


def _remove_but(kept: Path, folder: Path) -> None:
    """Removes a folder and all that is in it, but `kept`, one of its entries, if there is one."""
    for path in folder.iterdir() if kept.exists() else [folder]:
        if path.is_dir() and path != kept:
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_file():
            path.unlink()


def _show_failed_validation(outputs: Path, folder: Path) -> None:
    """Raises `ValidationFailed` if that is why the run ended, and keeps the report in `folder`/validation.

    The runner does not return a task's exit code, so this reads the verdict.
    """
    for verdict in outputs.glob(f"**/{FOLDER}/{GATE[VERDICT]}"):
        if not read_manifest(verdict).facts["passed"]:
            with whole_folder(folder / VERDICT) as staging:
                shutil.copytree(verdict, staging, dirs_exist_ok=True)
            raise ValidationFailed(f"the corpus did not pass validation; open {folder / VERDICT / 'report.html'}")


def find_result(outputs: Path, result: Result) -> Path | None:
    """The result among the outputs of a run, which the runner stores as <run>/…/<task>/<output>."""
    for component in result.components:
        place = f"**/{component}*/{result.artifact or result.output}"
        found = sorted(path for path in outputs.glob(place) if any(path.iterdir()))
        if found:
            return found[-1]
    return None


def find_output(outputs: Path, source: str) -> Path:
    """The folder of `step/output` among the outputs of a run. Raises `PipelineFailed` if no task handed it on."""
    if found := sorted(outputs.glob(f"**/{FOLDER}/{source}/{MANIFEST}")):
        return found[-1].parent
    raise PipelineFailed(f"no task wrote {source}")
