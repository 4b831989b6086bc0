"""Makes a cluster's recurring runs match a file, with the only changes that Kubeflow allows: create, disable, delete.

A recurring run cannot be changed. So a changed schedule first gets a new recurring run, and then the old one is
deleted; runs that it started continue. A mark in the description shows which recurring runs are ours; others are never
touched, nor those of other experiments, which belong to other files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stillhouse.kubeflow.pipelines.schedules.cluster import Kubeflow
from stillhouse.kubeflow.pipelines.schedules.file import Schedule

MARK = "stillhouse schedule"
ENABLED = "ENABLED"
"""The status of a recurring run that starts runs."""


def name_of(schedule: Schedule) -> str:
    return f"{schedule.name}-{schedule.digest}"


def apply(schedules: Iterable[Schedule], cluster: Kubeflow, *, dry: bool = False) -> Iterator[tuple[str, str]]:
    """Makes the schedules of the file's experiment match the given ones; with `dry`, only says how.

    Yields every change and the recurring run's name: `create`, `enable`, `disable`, `delete` or `keep`. Raises
    `InputError` for what the cluster refuses; nothing has been deleted then.
    """
    wanted = {name_of(schedule): schedule for schedule in schedules}
    own = cluster.known_experiment()
    ours = [
        entry
        for entry in cluster.recurring_runs()
        if (entry.description or "").startswith(MARK) and entry.experiment_id == own
    ]
    ours.sort(key=lambda entry: entry.recurring_run_id)  # two commands at once may both create one, and keep the same
    there = {entry.display_name: entry for entry in ours}
    for name, schedule in wanted.items():
        if name not in there:
            if not dry:
                cluster.create(schedule, name, f"{MARK} {schedule.name}")
            yield "create", name
        elif (there[name].status == ENABLED) != schedule.enabled:
            if not dry:
                cluster.set_enabled(there[name].recurring_run_id, schedule.enabled)
            yield "enable" if schedule.enabled else "disable", name
        else:
            yield "keep", name
    for entry in ours:
        if entry.display_name not in wanted or entry is not there[entry.display_name]:
            if not dry:
                cluster.delete(entry.recurring_run_id)
            yield "delete", entry.display_name
