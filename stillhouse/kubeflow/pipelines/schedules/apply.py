"""Makes a cluster's recurring runs match a file, with the only changes that Kubeflow allows: create, disable, delete.

A recurring run cannot be changed. So a changed schedule first gets a new recurring run, and then the old one is
deleted; runs that it started continue. If the new one cannot be created, the old one stays in use. A mark in the
description shows which recurring runs are ours; others are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.schedules.cluster import Kubeflow
from stillhouse.kubeflow.pipelines.schedules.file import Schedule
from stillhouse.kubeflow.pipelines.schedules.parameters import refuse_default_image

MARK = "stillhouse schedule"
ENABLED = "ENABLED"
"""The status of a recurring run that starts runs."""


@dataclass(frozen=True)
class Change:
    """What was or would be done: `create`, `enable`, `disable`, `delete`, `keep`, `leave` or `fail`."""

    action: str
    name: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.action:8}{self.name}{f': {self.why}' if self.why else ''}"


def name_of(schedule: Schedule) -> str:
    return f"{schedule.name}-{schedule.digest}"


def apply(schedules: Iterable[Schedule], cluster: Kubeflow, *, dry: bool = False) -> list[Change]:
    """Makes the schedules of the file's experiment match the given ones; with `dry`, only returns the changes.

    It is idempotent. Schedules of other experiments belong to other files and stay unchanged.

    Before any change, raises `InputError` for a missing pipeline or version, or one without an image to run. A change
    that the cluster refuses becomes a `fail`, and the others are still made.
    """
    wanted = {name_of(schedule): schedule for schedule in schedules}
    there: dict[str, Any] = {}
    left: list[Any] = []
    foreign: list[Change] = []
    own = cluster.known_experiment()
    # Sorted by id, so that two concurrent `apply` calls that created duplicates keep the same one.
    for entry in sorted(cluster.recurring_runs(), key=lambda entry: entry.recurring_run_id):
        if not (entry.description or "").startswith(MARK):
            continue
        if entry.experiment_id != own:
            foreign.append(
                Change("leave", entry.display_name, "it belongs to another experiment, and so to another file")
            )
        elif entry.display_name in wanted and entry.display_name not in there:
            there[entry.display_name] = entry
        else:
            left.append(entry)
    for name, schedule in wanted.items():
        if name not in there:
            refuse_default_image(schedule, cluster.version_of(schedule.pipeline, schedule.version))
    changes = [_hold(name, schedule, there.get(name), cluster, dry) for name, schedule in wanted.items()]
    failed = {change.name for change in changes if change.action == "fail"}
    if failed:
        # An entry that is no longer in the file may have been renamed to one that failed.
        made = {_description(schedule) for name, schedule in wanted.items() if name not in failed}
        left = [entry for entry in left if entry.description in made]
    for entry in left:
        why = (
            "there is another of this name"
            if entry.display_name in there
            else "removed from the file, or changed there"
        )
        changes.append(
            _do(Change("delete", entry.display_name, why), partial(cluster.delete, entry.recurring_run_id), dry)
        )
    return changes + foreign


def _hold(name: str, schedule: Schedule, there: Any, cluster: Kubeflow, dry: bool) -> Change:
    if there is None:
        description = _description(schedule)
        return _do(Change("create", name, schedule.cron), lambda: cluster.create(schedule, name, description), dry)
    if (there.status == ENABLED) != schedule.enabled:
        change = Change("enable" if schedule.enabled else "disable", name)
        return _do(change, lambda: cluster.set_enabled(there.recurring_run_id, schedule.enabled), dry)
    return Change("keep", name)


def _do(change: Change, act: Callable[[], object], dry: bool) -> Change:
    """Makes a change unless `dry`; returns it, or a `fail` with the reason."""
    try:
        if not dry:
            act()
    except InputError as error:
        return Change("fail", change.name, f"{change.action}: {error}")
    return change


def _description(schedule: Schedule) -> str:
    return f"{MARK} {schedule.name}"
