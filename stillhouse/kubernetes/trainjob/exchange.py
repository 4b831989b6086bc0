"""The folder on the shared volume through which a step's pod and the nodes hand each other inputs and outputs.

Kubeflow gives artifacts to the step's own pod alone, while the nodes share one volume with it: the one of unfinished
work, where the checkpoints are too. The pod copies its inputs there before the job, and the outputs from there after
it. As the folder is named after the job, it holds the work of these settings on these inputs and of no others.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from stillhouse.artifacts import read_manifest, whole_folder, whole_folders
from stillhouse.context import work_root
from stillhouse.errors import InputError
from stillhouse.kubernetes.pods.held_folders import link_or_copy
from stillhouse.steps.execute import read_report
from stillhouse.steps.spec import Report, Step

FOLDER = "trainjobs"
FORGOTTEN_AFTER = 24 * 3600.0
"""Seconds after which what lies there for no job may go."""


def exchange_root() -> Path:
    return work_root().absolute() / FOLDER


class Handed(Protocol):
    """The folder of any job: what `follow` asks of it."""

    def done(self) -> bool:
        """Whether all that the nodes write is there."""

    def lost(self) -> bool:
        """Whether it was there when the job ended well, and is so no more."""

    def clear(self) -> None:
        """Removes what a new job is not to find."""


@dataclass(frozen=True)
class Exchange:
    """The folder of one job."""

    folder: Path
    step: Step

    @property
    def report(self) -> Path:
        """What the step said of itself, which the first process writes when its outputs are whole."""
        return self.folder / "report.json"

    @property
    def outputs(self) -> dict[str, Path]:
        return {port.name: self.folder / "outputs" / port.name for port in self.step.outputs}

    def put(self, inputs: Mapping[str, Path]) -> dict[str, Path]:
        """Copies the inputs, each whole or not at all; what an earlier try has copied is there already."""
        there = put_inputs(self.folder, inputs)
        (self.folder / "outputs").mkdir(exist_ok=True)
        return there

    @property
    def _nothing_came(self) -> Path:
        """Marks that the job has ended well and that nothing of it had come to this volume."""
        return self.folder / "nothing-came"

    def done(self) -> bool:
        """Whether all that the nodes write is there, and as they wrote it."""
        if not self.report.is_file():
            return False
        try:
            for path in self.outputs.values():
                read_manifest(path)
        except InputError:
            return False
        return True

    def lost(self) -> bool:
        """Whether the outputs of a job that ended well were here, and are so no more.

        Those that never came would not come from another job either: its nodes have another volume.
        """
        return not self._nothing_came.exists() and not self.done()

    def clear(self) -> None:
        """Removes what is left of outputs, so that nobody takes it for those of a new job."""
        self._nothing_came.unlink(missing_ok=True)
        self.report.unlink(missing_ok=True)
        for path in self.outputs.values():
            shutil.rmtree(path, ignore_errors=True)

    def collect(self, outputs: Mapping[str, Path], nodes: int) -> Report:
        """Copies the outputs to where the step's pod has them. They stay here too, until the job is deleted.

        A pod that is killed while Kubeflow takes its outputs is tried again, and finds them.
        """
        if not self.done():
            self._nothing_came.touch()
            raise InputError(
                f"the nodes ended well but left no outputs in {self.folder}: they have another volume at this path. "
                "Give the placement a claim that every node can mount (ReadWriteMany) and start another run"
            )
        facts = read_manifest(next(iter(self.outputs.values())), verify=False).facts
        report = read_report(self.report, facts)
        with whole_folders([outputs[name] for name in self.outputs]) as stagings:
            for source, staging in zip(self.outputs.values(), stagings):
                shutil.copytree(source, staging, dirs_exist_ok=True)
        shutil.rmtree(self.folder / "inputs", ignore_errors=True)
        where = "a node of its own" if nodes == 1 else f"{nodes} nodes"
        return replace(report, summary=f"{report.summary}, on {where}")


def put_inputs(folder: Path, inputs: Mapping[str, Path]) -> dict[str, Path]:
    """Puts inputs into the folder of a job, each whole or not at all: linked on one volume, else copied."""
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    there = {name: folder / "inputs" / name for name in inputs}
    for name, source in inputs.items():
        if not there[name].is_dir():
            with whole_folder(there[name]) as staging:
                shutil.copytree(source, staging, dirs_exist_ok=True, copy_function=link_or_copy)
    return there


def prune(keep: str, exists: Callable[[str], bool]) -> list[str]:
    """Removes the folders of jobs that are gone, with their runs; all but `keep` and those of the last day."""
    removed = []
    for folder in sorted(exchange_root().iterdir()) if exchange_root().is_dir() else []:
        old = time.time() - folder.stat().st_mtime > FORGOTTEN_AFTER
        if folder.is_dir() and folder.name != keep and old and not exists(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder.name)
    return removed
