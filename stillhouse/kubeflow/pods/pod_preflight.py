"""Checks that a pod suits its step before the step starts."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from stillhouse.core import context
from stillhouse.core.terminal import show
from stillhouse.kubeflow.pods.pipeline_parameters import accelerator_count, pipeline_parameters
from stillhouse.kubeflow.pods.several_processes import processes_asked
from stillhouse.kubeflow.preflight import check, read_requirements, take_readings


def check_pod(parallel: bool = False) -> None:
    """Runs the preflight if the environment asks for it. Raises `InputError` with every remedy.

    The number of GPUs comes from the run's parameter. The GPUs of a `parallel` step have to work together, unless the
    environment asks for a single process.
    """
    wanted = read_requirements(os.environ)
    if wanted is None:
        return
    if wanted.gpus:
        wanted = replace(wanted, gpus=accelerator_count(pipeline_parameters(sys.argv), wanted.gpus))
    together = wanted.gpus if parallel and processes_asked() != 1 else 0
    show(f"[preflight] {check(wanted, take_readings(context.work_root(), together))}")
