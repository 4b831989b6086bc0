"""Runs a comparison's plan: skips finished work, shares common work, and continues if a variant fails."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stillhouse.core.artifacts import refuse_file_above, refuse_foreign
from stillhouse.core.errors import InputError, is_full_disk
from stillhouse.core.monitoring.duration import in_words
from stillhouse.experiments.comparison.plan import Job, Plan
from stillhouse.pipeline.graph import ARTIFACTS, Use
from stillhouse.pipeline.in_process import Run, execute_use, up_to_date


@dataclass(frozen=True)
class Failure:
    """Why a job has no result. `bad_input`: the user can fix it."""

    use: str
    reason: str
    bad_input: bool

    @classmethod
    def of(cls, use: Use, error: Exception) -> Failure:
        """An error of a step, with its message on one line."""
        text = " ".join(str(error).split())
        if not isinstance(error, InputError):
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return cls(use.name, text, isinstance(error, InputError))


@dataclass
class Runner:
    """Runs jobs in `folder` and checks each use only once per process.

    `run_use` runs a step. `done` are the places of uses that need no work.
    """

    folder: Path
    log: Callable[[str], None] = lambda line: None
    run_use: Run = execute_use
    done: set[Path] = field(default_factory=set)
    failed: dict[Path, Failure] = field(default_factory=dict)

    def run(self, plan: Plan) -> dict[tuple[str, int], Failure]:
        """Run everything and return the failed jobs, by variant and seed.

        Errors in the uses that all variants share are raised: without them there is nothing to compare.
        """
        self.log(f"shared by all variants: {', '.join(use.name for use in plan.reference.uses)}")
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
                self.log(f"[{number + 1} of {len(plan.jobs)}] {job.name} failed at {executed.use}: {executed.reason}")
        return failures

    def run_job(self, job: Job, *, catch: bool = True) -> Failure | None:
        """Run one job and return why it failed, or None."""
        for use in job.uses:
            root = self.folder / job.places[use.name] / ARTIFACTS
            key = root / use.name
            if key in self.failed:
                return self.failed[key]
            if key in self.done:
                continue
            try:
                self._run_use(use, job, root)
            except Exception as error:
                if not catch or is_full_disk(error):
                    raise
                self.failed[key] = Failure.of(use, error)
                return self.failed[key]
            self.done.add(key)
        for use in job.uses:
            self._link(use.name, job, self.folder / job.place / ARTIFACTS)
        return None

    def _run_use(self, use: Use, job: Job, root: Path) -> None:
        for source in use.inputs.values():
            self._link(source.split("/")[0], job, root)
        place = root / use.name
        refuse_foreign_use(self.folder, place)
        if place.is_symlink():  # shared in an earlier sweep of this name, but not now
            place.unlink()
        config = job.configs[use.name]
        if up_to_date(use, config, root):
            self.log(f"  {use.name}: up to date")
            return
        self.run_use(use, config, root)

    def _link(self, name: str, job: Job, root: Path) -> None:
        """Link `root`/name to the use's outputs, so that every artifacts folder is complete."""
        target, link = self.folder / job.places[name] / ARTIFACTS / name, root / name
        if target == link:
            return
        relative = os.path.relpath(target, root)
        if link.is_symlink() and link.readlink().as_posix() == Path(relative).as_posix():
            return
        root.mkdir(parents=True, exist_ok=True)
        refuse_foreign_use(self.folder, link)
        if link.is_symlink():
            link.unlink()
        elif link.exists():  # the variant had its own in an earlier sweep of this name
            shutil.rmtree(link)
        link.symlink_to(relative, target_is_directory=True)


def refuse_foreign_use(folder: Path, place: Path) -> None:
    """Raises `InputError` if the place of a use in a comparison's `folder` holds something that no comparison made.

    A comparison makes outputs of a step, or a link to such outputs elsewhere in the same folder.
    """
    if place.is_symlink():
        target = Path(os.path.normpath(place.parent / place.readlink()))
        if target.name != place.name or Path(os.path.normpath(folder)) not in target.parents:
            raise InputError(
                f"{place} is a link that was not made by a comparison; move it away, or choose another --folder"
            )
        return
    refuse_file_above(place / "output")
    for output in sorted(place.iterdir()) if place.is_dir() else ():
        refuse_foreign(output, place.name)
