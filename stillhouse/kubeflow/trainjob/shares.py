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
from stillhouse.kubeflow.trainjob.division import Division
from stillhouse.kubeflow.trainjob.launch import run_job
from stillhouse.kubeflow.trainjob.parts import NODE, NODES, PROCESSES, PROGRAM, Part, all_done, read_parts, write_parts
from stillhouse.kubeflow.trainjob.settings import OWN, NodeSettings
from stillhouse.pipeline.steps.spec import Step


@contextmanager
def shared_work(step: Step, config: Any, inputs: Mapping[str, Path], settings: NodeSettings) -> Iterator[Path]:
    """Yields the results of the nodes and this pod for the shards of a step's corpus, as `Context.shares`.

    There is one shard per node and one for the pod. The copied inputs are removed after the block. Raises the errors
    of `execute_on_nodes`.
    """
    division = Division(step, config, inputs, OWN + settings.placement.nodes)
    processes = processes_for(division.part)
    folder = run_job(
        division.part.name,
        division.name,
        settings,
        lambda folder: _program(folder, division.parts(folder), str(OWN)),
        lambda folder: all_done(folder, OWN),
        lambda folder: _own_parts(folder, processes),
    )
    yield division.together(folder)
    shutil.rmtree(folder, ignore_errors=True)


def run_parts(name: str, work: str, parts: Sequence[Part], settings: NodeSettings) -> None:
    """Does `parts` on nodes, with outputs on the shared volume. Raises the errors of `execute_on_nodes`."""
    folder = run_job(name, work, settings, lambda folder: _program(folder, parts), all_done)
    shutil.rmtree(folder, ignore_errors=True)


def _program(folder: Path, parts: Sequence[Part], *own: str) -> list[str]:
    """Writes the parts, and returns the command line that does a node's."""
    write_parts(folder, parts)
    return [*PROGRAM, str(folder), *own]


@contextmanager
def _own_parts(folder: Path, processes: int) -> Iterator[None]:
    """Does the pod's own parts in a process while the block follows the nodes; ends that process if the block fails.

    Raises the errors of `shared_work` once the nodes are done.
    """
    process = subprocess.Popen(
        [sys.executable, *PROGRAM[1:], str(folder)],
        env=os.environ | {NODE: "0", NODES: str(len(read_parts(folder))), PROCESSES: str(processes)},
    )
    try:
        yield
        code = process.wait()  # the pod may get SIGTERM here too
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if code:
        failure = InputError if code == InputError.exit_code else CrashElsewhere
        raise failure(f"a shard failed on the task's own pod (exit code {code}); its own lines above say why")
