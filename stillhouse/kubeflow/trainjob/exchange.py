"""The folder on the shared volume through which a step's pod and the nodes exchange inputs and outputs.

Kubeflow gives artifacts only to the step's own pod. The nodes share one volume with it, the one for unfinished work
and checkpoints. The pod copies its inputs there before the job, and the outputs from there after it. The folder is
named after the job, so it only holds the work for these settings and inputs.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from stillhouse.core.artifacts import read_manifest, whole_folder, whole_folders
from stillhouse.core.context import work_root
from stillhouse.core.errors import InputError
from stillhouse.core.own_files import link_or_copy
from stillhouse.pipeline.steps.execute import read_report
from stillhouse.pipeline.steps.spec import Report, Step

FOLDER = "trainjobs"
FORGOTTEN_AFTER = 24 * 3600.0
"""Seconds after which a folder that belongs to no job may be removed."""


def exchange_root() -> Path:
    return work_root().absolute() / FOLDER


@dataclass(frozen=True)
class Exchange:
    """The folder of one job."""

    folder: Path
    step: Step

    @property
    def report(self) -> Path:
        """The step's report, which the first process writes once its outputs are complete."""
        return self.folder / "report.json"

    @property
    def outputs(self) -> dict[str, Path]:
        return {port.name: self.folder / "outputs" / port.name for port in self.step.outputs}

    def put(self, inputs: Mapping[str, Path]) -> dict[str, Path]:
        """Copies the inputs, each completely or not at all; keeps what an earlier try copied."""
        there = put_inputs(self.folder, inputs)
        (self.folder / "outputs").mkdir(exist_ok=True)
        return there

    def done(self) -> bool:
        """Whether everything that the nodes write is there and unchanged."""
        if not self.report.is_file():
            return False
        try:
            for path in self.outputs.values():
                read_manifest(path)
        except InputError:
            return False
        return True

    def clear(self) -> None:
        """Removes leftover outputs, so that they are not mistaken for those of a new job."""
        self.report.unlink(missing_ok=True)
        for path in self.outputs.values():
            shutil.rmtree(path, ignore_errors=True)

    def collect(self, outputs: Mapping[str, Path], nodes: int) -> Report:
        """Copies the outputs to their places in the step's pod. They also stay here until the job is deleted.

        A pod that is killed while Kubeflow collects its outputs is retried and finds them.
        """
        if not self.done():
            raise InputError(
                f"the nodes succeeded but left no outputs in {self.folder}: another volume is mounted there. Give "
                "the placement a claim that every node can mount (ReadWriteMany), and start another run"
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
    """Puts inputs into a job's folder, each completely or not at all: linked on the same volume, else copied."""
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    there = {name: folder / "inputs" / name for name in inputs}
    for name, source in inputs.items():
        if not there[name].is_dir():
            with whole_folder(there[name]) as staging:
                shutil.copytree(source, staging, dirs_exist_ok=True, copy_function=link_or_copy)
    return there


def prune(keep: str, exists: Callable[[str], bool]) -> list[str]:
    """Removes the folders of deleted jobs, except `keep` and those of the last day. Returns their names."""
    removed = []
    for folder in sorted(exchange_root().iterdir()) if exchange_root().is_dir() else []:
        old = folder.is_dir() and time.time() - folder.stat().st_mtime > FORGOTTEN_AFTER
        if folder.name != keep and old and not exists(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder.name)
    return removed
