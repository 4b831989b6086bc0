"""Makes a cluster's recurring runs match a file, with the only changes that Kubeflow allows: create, disable, delete.

A recurring run cannot be changed, and deleting one may end the runs that it started. So a changed schedule first gets
a new recurring run. Then the old one is disabled, and deleted once none of its runs is in flight: now, or by a later
`apply`. Kubeflow may be starting a run when it gets the order to disable, so `apply` waits for it to settle, and lists
the runs again before each deletion. If the new recurring run cannot be created, the old one stays in use.
A mark in the description shows which recurring runs are ours; others are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.schedules.cluster import Kubeflow, Recurring, Run
from stillhouse.kubeflow.pipelines.schedules.file import Schedule
from stillhouse.kubeflow.pipelines.schedules.parameters import refuse_default_image
from stillhouse.kubeflow.pipelines.termination import CANCELING, LONGEST_SECONDS, remedy

MARK = "stillhouse schedule"


@dataclass(frozen=True)
class Change:
    """What was or would be done: `create`, `enable`, `disable`, `delete`, `keep`, `wait`, `leave` or `fail`."""

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
    there: dict[str, Recurring] = {}
    left: list[Recurring] = []
    foreign: list[Change] = []
    own = cluster.known_experiment()
    # Sorted by id, so that two concurrent `apply` calls that created duplicates keep the same one.
    for entry in sorted(cluster.recurring_runs(), key=lambda entry: entry.id):
        if not entry.description.startswith(MARK):
            continue
        if entry.experiment != own:
            foreign.append(Change("leave", entry.name, "it belongs to another experiment, so to another file"))
        elif entry.name in wanted and entry.name not in there:
            there[entry.name] = entry
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
    return changes + _retire(left, set(there), cluster, dry) + foreign


def _retire(left: list[Recurring], names: set[str], cluster: Kubeflow, dry: bool) -> list[Change]:
    """Disables recurring runs, and deletes the ones that have no run in flight."""
    changes, failed = [], set()
    for entry in left:
        if entry.enabled:
            twice = "there is another with this name"
            change = Change(
                "disable", entry.name, twice if entry.name in names else "removed from the file, or changed there"
            )
            changes.append(_do(change, partial(cluster.set_enabled, entry.id, False), dry))
            if changes[-1].action == "fail":
                failed.add(entry.id)
    if changes and not dry:
        cluster.settle()
    for entry in left:
        if entry.id in failed:
            continue
        kept, stuck = _look(entry, cluster, dry)
        if kept:
            changes.append(Change("wait", entry.name, f"{kept}; the next `apply` deletes it"))
        else:
            changes.append(_do(Change("delete", entry.name, stuck), partial(cluster.delete, entry.id), dry))
    return changes


def _look(entry: Recurring, cluster: Kubeflow, dry: bool) -> tuple[str, str]:
    """Why a recurring run must not be deleted now, or "", and which of its runs may never end.

    A recurring run with a run in flight is not enabled again: it was replaced, or removed from the file. A run that
    was terminated long ago no longer counts as in flight, though Argo may leave it running forever.
    """
    if not dry and any(other.id == entry.id and other.enabled for other in cluster.recurring_runs()):
        return "somebody enabled it again", ""
    own = [run for run in cluster.runs() if run.recurring == entry.id]
    kept = next((_in_flight(run) for run in own if run.in_flight), "")
    stuck = [f"its run {run.name} was terminated and has not ended. {remedy(run.id)}" for run in own if run.stuck]
    return kept, "; ".join(stuck)


def _in_flight(run: Run) -> str:
    if run.state != CANCELING:
        return "one of its runs is in flight"
    if run.terminated is None:  # Kubeflow has not recorded the time, and never does if its agent is broken
        return f"its run {run.name} was terminated and has not ended. {remedy(run.id)}"
    return f"its run {run.name} was terminated; waiting for its end, {LONGEST_SECONDS // 60} minutes at most"


def _hold(name: str, schedule: Schedule, there: Recurring | None, cluster: Kubeflow, dry: bool) -> Change:
    if there is None:
        description = _description(schedule)
        return _do(Change("create", name, schedule.cron), lambda: cluster.create(schedule, name, description), dry)
    if there.enabled != schedule.enabled:
        change = Change("enable" if schedule.enabled else "disable", name)
        return _do(change, lambda: cluster.set_enabled(there.id, schedule.enabled), dry)
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
