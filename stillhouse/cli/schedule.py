"""`stillhouse schedule`: syncs the cluster's schedules with a file, lists them, and watches corpora."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.core.terminal import show
from stillhouse.pipeline.parser import Parser, flag, run_action

HELP = """\
usage: stillhouse schedule ACTION [--help] ...

actions:
  apply  syncs the cluster's recurring runs with a file; never deletes one that has a run in flight
  list   lists Stillhouse's recurring runs on the cluster
  watch  checks every watched corpus once and refreshes those that changed (a CronJob runs it)

examples:
  stillhouse schedule apply schedules.yaml --dry-run
  stillhouse schedule watch schedules.yaml --endpoint http://localhost:8888
"""


def main(argv: Sequence[str]) -> int:
    return run_action("schedule", HELP, ACTIONS, argv)


def _parser(action: str, description: str, *, file: bool = True) -> Parser:
    parser = Parser(f"schedule {action}", description)
    if file:
        parser.add_argument("file", metavar="FILE", type=Path, help="the schedules and watches; see docs/releases.md")
    flag(parser, "--endpoint URL", "the Kubeflow API server (default: the one in this cluster)", default="")
    flag(parser, "--namespace NAME", "the namespace of the runs", default="")
    return parser


def apply_action(argv: Sequence[str]) -> int:
    parser = _parser("apply", "Syncs the cluster's recurring runs with a file.")
    flag(parser, "--dry-run", "show the changes without making them")
    arguments = parser.parse(argv)
    from stillhouse.kubeflow.pipelines.schedules.apply import apply
    from stillhouse.kubeflow.pipelines.schedules.cluster import Kubeflow
    from stillhouse.kubeflow.pipelines.schedules.file import read_schedules
    from stillhouse.kubeflow.pipelines.schedules.parameters import refuse_parameters

    wanted = read_schedules(arguments.file)
    refuse_parameters(wanted)
    cluster = Kubeflow(wanted.experiment, arguments.endpoint, arguments.namespace)
    changes = apply(wanted.schedules.values(), cluster, dry=arguments.dry_run)
    for change in changes:
        show(change)
    failed = [change for change in changes if change.action == "fail"]
    if failed:
        raise InputError(
            f"{failed[0].name} could not be applied ({failed[0].why}); what it replaces stays in use. Fix the file, or "
            "the cause, and repeat the command"
        )
    return 0


def list_action(argv: Sequence[str]) -> int:
    arguments = _parser("list", "Lists Stillhouse's recurring runs on the cluster.", file=False).parse(argv)
    from stillhouse.kubeflow.pipelines.schedules.apply import ENABLED, MARK
    from stillhouse.kubeflow.pipelines.schedules.cluster import Kubeflow, in_flight

    cluster = Kubeflow("stillhouse", arguments.endpoint, arguments.namespace)
    busy = {run.recurring_run_id for run in cluster.runs() if in_flight(run)}
    for entry in cluster.recurring_runs():
        if (entry.description or "").startswith(MARK):
            more = ", a run in flight" if entry.recurring_run_id in busy else ""
            show(f"{entry.display_name}  {'enabled' if entry.status == ENABLED else 'disabled'}{more}")
    return 0


def watch_action(argv: Sequence[str]) -> int:
    parser = _parser("watch", "Checks every watched corpus once and starts a refresh of those that changed.")
    flag(parser, "--again", "retry a refresh that failed or was refused")
    arguments = parser.parse(argv)
    from stillhouse.kubeflow.pipelines.schedules.cluster import Kubeflow
    from stillhouse.kubeflow.pipelines.schedules.file import read_schedules
    from stillhouse.kubeflow.pipelines.schedules.parameters import refuse_parameters
    from stillhouse.kubeflow.pipelines.schedules.watch import look, report_schedule, watch_interval

    wanted = read_schedules(arguments.file)
    if wanted.watches is None:
        raise InputError(f"{arguments.file} has no `watches`; add them, as docs/releases.md shows")
    if not wanted.watches:  # the state after installation, not a failure of the CronJob
        show(f"nothing to watch: list corpora under `watches` in {arguments.file}, as docs/releases.md shows")
        return 0
    refuse_parameters(wanted)
    cluster = Kubeflow(wanted.experiment, arguments.endpoint, arguments.namespace)
    failed = ""
    for watch in wanted.watches.values():
        try:
            seen = look(watch, cluster, again=arguments.again)
            show(seen)
            report_schedule(watch.name, watch_interval(), seen.fresh, seen.in_flight, show)
        except InputError as error:  # the others are still checked
            show(f"{watch.name}: not checked, {error}")
            failed = failed or watch.name
    if failed:
        raise InputError(f"the watch {failed!r} could not be checked; its line above says why")
    return 0


ACTIONS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "apply": apply_action,
    "list": list_action,
    "watch": watch_action,
}
"""The actions, by name."""
