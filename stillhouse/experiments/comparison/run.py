"""Runs a comparison's plan: skips finished work, shares common work, and continues if a variant fails."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError, is_full_disk
from stillhouse.core.lock import only_process
from stillhouse.core.monitoring.activity import in_words
from stillhouse.experiments.comparison.plan import Job, Plan
from stillhouse.pipeline.graph import ARTIFACTS, GraphStep
from stillhouse.pipeline.in_process import Run, execute_step, refuse_foreign_outputs, up_to_date


@dataclass(frozen=True)
class Failure:
    """Why a job has no result. `bad_input`: the user can fix it."""

    step: str
    reason: str
    bad_input: bool

    @classmethod
    def of(cls, step: GraphStep, error: Exception) -> Failure:
        """An error of a step, with its message on one line."""
        text = " ".join(str(error).split())
        if not isinstance(error, InputError):
            traceback.print_exception(error)
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return cls(step.name, text, isinstance(error, InputError))


@dataclass
class Runner:
    """Runs jobs in `folder` and checks each step only once per process.

    `run_step` runs a step. `done` are the places of steps that need no work.
    """

    folder: Path
    log: Callable[[str], None] = lambda line: None
    run_step: Run = execute_step
    done: set[Path] = field(default_factory=set)
    failed: dict[Path, Failure] = field(default_factory=dict)

    def run(self, plan: Plan) -> dict[tuple[str, int], Failure]:
        """Run everything and return the failed jobs, by variant and seed.

        Errors in the steps that all variants share are raised: without them there is nothing to compare.
        """
        self.log(f"shared by all variants: {', '.join(step.name for step in plan.reference.steps)}")
        failure = self.run_job(plan.reference, catch=False)
        assert failure is None
        failures: dict[tuple[str, int], Failure] = {}
        started, worked = time.monotonic(), 0
        for number, job in enumerate(plan.jobs):
            before = len(self.done)
            remaining = (time.monotonic() - started) / max(1, worked) * (len(plan.jobs) - number)
            left = f", about {in_words(remaining)} left" if worked else ""
            self.log(f"[{number + 1} of {len(plan.jobs)}] {job.name}{left}")
            executed = self.run_job(job)
            worked += len(self.done) > before or executed is not None
            if executed is not None:
                failures[job.variant, job.seed] = executed
                self.log(f"[{number + 1} of {len(plan.jobs)}] {job.name} failed at {executed.step}: {executed.reason}")
        return failures

    def run_job(self, job: Job, *, catch: bool = True) -> Failure | None:
        """Run one job and return why it failed, or None."""
        for step in job.steps:
            root = self.folder / job.places[step.name] / ARTIFACTS
            key = root / step.name
            if key in self.failed:
                return self.failed[key]
            if key in self.done:
                continue
            try:
                self._run_step(job.placed(step, self.folder), job.configs[step.name], root)
            except Exception as error:
                if not catch or is_full_disk(error):
                    raise
                self.failed[key] = Failure.of(step, error)
                return self.failed[key]
            self.done.add(key)
        return None

    def _run_step(self, step: GraphStep, config: Any, root: Path) -> None:
        refuse_foreign_outputs([step], root)
        with only_process(root / step.name, wait=self.log):  # a pod's nodes may need the same step at once
            if up_to_date(step, config, root):
                self.log(f"  {step.name}: up to date")
            else:
                self.run_step(step, config, root)
