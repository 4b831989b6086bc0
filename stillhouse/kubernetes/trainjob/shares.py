"""Shares a step's work on one corpus: each node encodes or counts a shard, and so does the pod that waits for them.

A pod that only waited for its nodes would waste its GPU, so it does the first shard itself. Without a cluster, this
machine does all shards one after the other.
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

from stillhouse.context import say, work_root
from stillhouse.errors import CrashElsewhere, InputError
from stillhouse.kubernetes.pods.several_processes import processes_for
from stillhouse.kubernetes.preflight import REQUIREMENTS
from stillhouse.kubernetes.trainjob.cluster import Cluster
from stillhouse.kubernetes.trainjob.division import Division
from stillhouse.kubernetes.trainjob.launch import run_job
from stillhouse.kubernetes.trainjob.parts import NODE, NODES, PROCESSES, PROGRAM, Part, Parts, do_parts
from stillhouse.kubernetes.trainjob.settings import OWN, NodeSettings
from stillhouse.lock import only_process
from stillhouse.monitoring.activity import ELSEWHERE, doing
from stillhouse.steps.old_work import DAYS, remove_old_work
from stillhouse.steps.spec import Step

FOLDER = "shards"
"""The folder of the work area that keeps finished shards until all are done."""


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


@contextmanager
def shared_here(step: Step, config: Any, inputs: Mapping[str, Path], shards: int) -> Iterator[Path]:
    """Yields what `shared_work` does; processes on this machine do every shard, one after the other.

    Finished shards are not repeated after a kill. Raises `InputError` or `CrashElsewhere` if a shard fails.
    """
    division = Division(step, config, inputs, shards)
    root = work_root().absolute() / FOLDER
    parts = Parts(root / division.name)
    with only_process(parts.folder, wait=say):
        for gone in remove_old_work(root, division.part.name, division.name):
            say(f"[{step.name}] removed {gone}, left by a run more than {DAYS} days ago")
        parts.write(division.parts(parts.folder))
        say(f"[{step.name}] {shards} shards, one after the other")
        with doing(ELSEWHERE):
            code = do_parts(parts, range(1, shards + 1), processes_for(division.part))
        _refuse_failure(code, "this machine")
        yield division.together(parts.folder)
        shutil.rmtree(parts.folder, ignore_errors=True)


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

    Raises the errors of `shared_here` once the nodes are done.
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
