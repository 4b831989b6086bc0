"""Makes a cluster's recurring runs equal to a file, by the only changes that Kubeflow allows: create, disable, delete.

A recurring run cannot be changed, and deleting one ends the runs that it started. So one that is to be another is first
disabled, then its successor is made, and it is deleted once none of its runs is in flight: now, or by a later `apply`.
Whose a recurring run is stands in its description; those of others are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.schedules.cluster import Cluster, Recurring
from pipelines.schedules.file import Schedule

MARK = "stillhouse schedule"


@dataclass(frozen=True)
class Change:
    """What was done, or would be: `create`, `enable`, `disable`, `delete`, `keep` or `wait`."""

    action: str
    name: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.action:8}{self.name}{f': {self.why}' if self.why else ''}"


def name_of(schedule: Schedule) -> str:
    return f"{schedule.name}-{schedule.digest}"


def apply(schedules: Iterable[Schedule], cluster: Cluster, *, dry: bool = False) -> list[Change]:
    """Makes the cluster's schedules those given; with `dry` only says how. Applied twice it does nothing."""
    wanted = {name_of(schedule): schedule for schedule in schedules}
    there = {entry.name: entry for entry in cluster.recurring_runs() if entry.description.startswith(MARK)}
    changes: list[Change] = []
    left = [entry for name, entry in there.items() if name not in wanted]
    for entry in left:
        if entry.enabled:
            changes.append(Change("disable", entry.name, "the file has it no more, or otherwise"))
            if not dry:
                cluster.set_enabled(entry.id, False)
    for name, schedule in wanted.items():
        changes.append(_hold(name, schedule, there.get(name), cluster, dry))
    # Looked at after they were disabled: none can start a run between the look and the deletion.
    in_flight = {run.recurring for run in cluster.runs() if run.in_flight}
    for entry in left:
        if entry.id in in_flight:
            changes.append(Change("wait", entry.name, "a run of it is in flight; the next `apply` deletes it"))
            continue
        changes.append(Change("delete", entry.name))
        if not dry:
            cluster.delete(entry.id)
    return changes


def _hold(name: str, schedule: Schedule, there: Recurring | None, cluster: Cluster, dry: bool) -> Change:
    if there is None:
        if not dry:
            cluster.create(schedule, name, f"{MARK} {schedule.name}")
        return Change("create", name, schedule.cron)
    if there.enabled != schedule.enabled:
        if not dry:
            cluster.set_enabled(there.id, schedule.enabled)
        return Change("enable" if schedule.enabled else "disable", name)
    return Change("keep", name)
