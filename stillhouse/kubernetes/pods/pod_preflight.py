"""Whether a pod will do for its step, asked before the step begins."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from stillhouse import context
from stillhouse.kubernetes.pods.pipeline_parameters import accelerator_count, pipeline_parameters
from stillhouse.kubernetes.pods.several_processes import processes_asked
from stillhouse.kubernetes.preflight import check, read_requirements, take_readings
from stillhouse.terminal import show


def check_pod(parallel: bool = False) -> None:
    """Runs the preflight where the environment asks for it. Raises `InputError` with every remedy.

    The GPUs are as many as the run's own parameter says. Those of a step that is `parallel` have to work together,
    unless the environment says that one process works.
    """
    wanted = read_requirements(os.environ)
    if wanted is None:
        return
    if wanted.gpus:
        wanted = replace(wanted, gpus=accelerator_count(pipeline_parameters(sys.argv), wanted.gpus))
    together = wanted.gpus if parallel and processes_asked() != 1 else 0
    show(f"[preflight] {check(wanted, take_readings(context.work_root(), together))}")
