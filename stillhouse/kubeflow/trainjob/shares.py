"""Shares a step's work on one corpus: each node encodes or counts a shard, and so does the pod that waits for them.

A pod that only waited for its nodes would waste its GPU, so it does the first shard itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stillhouse.core.errors import CrashElsewhere, InputError
from stillhouse.kubeflow.pods.several_processes import processes_for
from stillhouse.kubeflow.preflight import REQUIREMENTS
from stillhouse.kubeflow.trainjob.cluster import Cluster
from stillhouse.kubeflow.trainjob.division import Division
from stillhouse.kubeflow.trainjob.launch import run_job
from stillhouse.kubeflow.trainjob.parts import NODE, NODES, PROCESSES, PROGRAM, Part, Parts
from stillhouse.kubeflow.trainjob.settings import OWN, NodeSettings
from stillhouse.pipeline.steps.spec import Step


@contextmanager
def shared_work(
    step: Step, config: Any, inputs: Mapping[str, Path], settings: NodeSettings, cluster: Cluster | None = None
) -> Iterator[Path]:
    """Yields the results of the nodes and this pod for the shards of a step's corpus, as `Context.shares`.

    There is one shard per node and one for the pod. The copied inputs are removed after the block. Raises the errors
    of `execute_on_nodes`.
    """
    division = Division(step, config, inputs, OWN + settings.nodes)

    def command(parts: Parts) -> list[str]:
        parts.write(division.parts(parts.folder))
        return [*PROGRAM, str(parts.folder), str(OWN)]

    parts = run_job(
        division.part.name,
        division.name,
        settings,
        lambda folder: Parts(folder, OWN),
        command,
        cluster,
        lambda shared: _own_parts(shared, processes_for(division.part)),
    )
    parts.refuse_missing()
    yield division.together(parts.folder)
    shutil.rmtree(parts.folder / "inputs", ignore_errors=True)


def run_parts(
    name: str, work: str, parts: Sequence[Part], settings: NodeSettings, cluster: Cluster | None = None
) -> None:
    """Does `parts` on nodes, with outputs on the shared volume. Raises the errors of `execute_on_nodes`."""

    def command(shared: Parts) -> list[str]:
        shared.write(parts)
        return [*PROGRAM, str(shared.folder)]

    run_job(name, work, settings, Parts, command, cluster).refuse_missing()


@contextmanager
def _own_parts(parts: Parts, processes: int) -> Iterator[None]:
    """Does the pod's own parts in a process while the block follows the nodes; ends that process if the block fails.

    Raises the errors of `shared_work` once the nodes are done.
    """
    # The pod has passed its preflight.
    environment = {name: value for name, value in os.environ.items() if name != REQUIREMENTS}
    process = subprocess.Popen(
        [sys.executable, *PROGRAM[1:], str(parts.folder)],
        env=environment | {NODE: "0", NODES: str(parts.count), PROCESSES: str(processes)},
    )
    try:
        yield
        code = process.wait()  # the pod may get SIGTERM here too
    except BaseException:
        process.terminate()
        process.wait()
        raise
    _refuse_failure(code, "the task's own pod")


def _refuse_failure(code: int, where: str) -> None:
    if code:
        failure = InputError if code == InputError.exit_code else CrashElsewhere
        raise failure(f"a shard failed on {where} (exit code {code}); its own lines above say why")
