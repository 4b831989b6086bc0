"""Runs one step in several processes on this machine, started by torchrun: one per GPU in a pod with several GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stillhouse.core import context
from stillhouse.core.artifacts import read_manifest
from stillhouse.core.config import field_types
from stillhouse.core.errors import CrashElsewhere, InputError
from stillhouse.core.monitoring.activity import ELSEWHERE, doing
from stillhouse.core.setting_kinds import as_text
from stillhouse.pipeline.steps.execute import read_report
from stillhouse.pipeline.steps.spec import Report, Step, flag_of

PROCESSES = "STILLHOUSE_PROCESSES"
"""Environment variable with the number of processes; by default one per usable GPU."""


def processes_for(step: Step) -> int:
    """How many processes work on a step here; 1 for a step that is not parallel.

    Raises `InputError` for an invalid number in the environment.
    """
    if not step.parallel or context.world_size() > 1:
        return 1
    if asked := os.environ.get(PROCESSES):
        if not asked.isdecimal() or not int(asked):
            raise InputError(f"${PROCESSES} is {asked!r}; use a whole number of at least 1")
        return int(asked)
    if context.device() == "cpu":
        return 1
    import torch

    return max(1, torch.cuda.device_count())


def execute_together(
    step: Step, config: Any, inputs: Mapping[str, Path], outputs: Mapping[str, Path], processes: int
) -> Report:
    """Runs a step in `processes` processes, which report errors in their own lines.

    Raises `InputError` if one of them refuses its input, and `CrashElsewhere` if one crashes.
    """
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "report.json"
        with doing(ELSEWHERE):
            words = [*step_words(step, config, inputs, outputs), f"--report={said}"]
            done = subprocess.run(by_torchrun(words, processes), check=False)
        if done.returncode:
            failure = InputError if done.returncode == InputError.exit_code else CrashElsewhere
            raise failure(
                f"step '{step.name}' failed in one of {processes} processes (exit code {done.returncode}); its own "
                f"lines above say why. ${PROCESSES}=1 runs it in one"
            )
        facts = read_manifest(next(iter(outputs.values())), verify=False).facts
        report = read_report(said, facts)
    return replace(report, summary=f"{report.summary}, by {processes} processes")


def by_torchrun(words: Sequence[str], processes: int) -> list[str]:
    """The command line that starts `stillhouse` with these words in several processes."""
    torchrun = ["stillhouse.kubeflow.pods.torchrun", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, "-m", *torchrun, *torchrun_words(words)]


def torchrun_words(step: Sequence[str]) -> list[str]:
    """What torchrun starts in each process. Without the dashes it would read `--signals` as its own flag."""
    return ["-m", "--", "stillhouse.cli", *step]


def step_words(step: Step, config: Any, inputs: Mapping[str, Path], outputs: Mapping[str, Path]) -> list[str]:
    """The arguments after `stillhouse` that run a step, with every folder and setting."""
    folders = {**inputs, **outputs}
    flags = [
        step.argument(key, str(folders[key])) for port in (*step.inputs, *step.outputs) for key in port.keys(folders)
    ]
    flags += [(flag_of(name), as_text(getattr(config, name))) for name in field_types(step.config)]
    return [step.name, *(f"{flag}={value}" for flag, value in flags)]
