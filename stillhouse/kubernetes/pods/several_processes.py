"""One step by several processes of this machine, started by torchrun: in a pod with several GPUs, one process each."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stillhouse import context
from stillhouse.artifacts import read_manifest
from stillhouse.config import field_types
from stillhouse.errors import CrashElsewhere, InputError
from stillhouse.setting_kinds import as_text
from stillhouse.steps.execute import read_report
from stillhouse.steps.spec import Report, Step

PROCESSES = "STILLHOUSE_PROCESSES"
"""Environment variable that says how many; without it, one for each GPU that can be used."""


def processes_for(step: Step) -> int:
    """How many processes work on a step here; 1 for a step that runs in one."""
    if not step.parallel or context.world_size() > 1:
        return 1
    asked = processes_asked()
    if asked:
        return asked
    if context.device() == "cpu":
        return 1
    import torch

    return max(1, torch.cuda.device_count())


def processes_asked() -> int:
    """How many the environment says; 0 where it says nothing. Raises `InputError` for an invalid number."""
    asked = os.environ.get(PROCESSES) or ""
    if asked and (not asked.isdecimal() or not int(asked)):
        raise InputError(f"${PROCESSES} is {asked!r}; give a whole number from 1")
    return int(asked or 0)


def execute_together(
    step: Step, config: Any, inputs: Mapping[str, Path], outputs: Mapping[str, Path], processes: int
) -> Report:
    """Runs a step by `processes` processes, whose own lines say what goes wrong.

    Raises `InputError` where one of them refuses what it is given, `CrashElsewhere` where one crashes.
    """
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "report.json"
        done = subprocess.run([*command(step, config, inputs, outputs, processes), f"--report={said}"], check=False)
        if done.returncode:
            failure = InputError if done.returncode == InputError.exit_code else CrashElsewhere
            raise failure(
                f"step '{step.name}' failed in one of {processes} processes (exit code {done.returncode}); its own "
                f"lines above say why. ${PROCESSES}=1 runs it in one"
            )
        facts = read_manifest(next(iter(outputs.values())), verify=False).facts
        report = read_report(said, facts)
    return replace(report, summary=f"{report.summary}, by {processes} processes")


def command(
    step: Step, config: Any, inputs: Mapping[str, Path], outputs: Mapping[str, Path], processes: int
) -> list[str]:
    """The command line: torchrun, then the step's own."""
    torchrun = ["stillhouse.kubernetes.pods.torchrun", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, "-m", *torchrun, *torchrun_words(step_words(step, config, inputs, outputs))]


def torchrun_words(step: Sequence[str]) -> list[str]:
    """What torchrun is to start in each process. Without the dashes it takes `--signals` for a flag of its own."""
    return ["-m", "--", "stillhouse.cli", *step]


def step_words(step: Step, config: Any, inputs: Mapping[str, Path], outputs: Mapping[str, Path]) -> list[str]:
    """The words after `stillhouse` that run a step, every folder and setting among them."""
    folders = {**inputs, **outputs}
    flags = [
        step.argument(key, str(folders[key])) for port in (*step.inputs, *step.outputs) for key in port.keys(folders)
    ]
    flags += [("--" + name.replace("_", "-"), as_text(getattr(config, name))) for name in field_types(step.config)]
    return [step.name, *(f"{flag}={value}" for flag, value in flags)]
