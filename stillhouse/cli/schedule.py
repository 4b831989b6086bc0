"""`stillhouse schedule`: syncs the cluster's schedules with a file, and watches corpora."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stillhouse.cli.pipeline import require_kfp
from stillhouse.core.errors import InputError
from stillhouse.core.terminal import show
from stillhouse.kubeflow.pipelines.schedules.file import read_schedules
from stillhouse.pipeline.parser import Parser, flag, run_action

HELP = """\
usage: stillhouse schedule ACTION [--help] ...

actions:
  apply  syncs the cluster's recurring runs with a file; runs that they started continue
  watch  checks every watched corpus once and refreshes those that changed (a CronJob runs it)

examples:
  stillhouse schedule apply schedules.yaml --dry-run
  stillhouse schedule watch schedules.yaml --endpoint http://localhost:8888
"""


def main(argv: Sequence[str]) -> int:
    return run_action("schedule", HELP, ACTIONS, argv)


def _parser(action: str, description: str) -> Parser:
    parser = Parser(f"schedule {action}", description)
    parser.add_argument("file", metavar="FILE", type=Path, help="the schedules and watches; see docs/releases.md")
    flag(parser, "--endpoint URL", "the Kubeflow API server (default: the one in this cluster)", default="")
    flag(parser, "--namespace NAME", "the namespace of the runs", default="")
    return parser


def apply_action(argv: Sequence[str]) -> int:
    parser = _parser("apply", "Syncs the cluster's recurring runs with a file.")
    flag(parser, "--dry-run", "show the changes without making them")
    arguments = parser.parse(argv)
    require_kfp()
    from stillhouse.kubeflow.pipelines.schedules.apply import apply
    from stillhouse.kubeflow.pipelines.schedules.cluster import Kubeflow
    from stillhouse.kubeflow.pipelines.schedules.parameters import refuse_parameters

    wanted = read_schedules(arguments.file)
    refuse_parameters(wanted)
    cluster = Kubeflow(wanted.experiment, arguments.endpoint, arguments.namespace)
    for action, name in apply(wanted.schedules.values(), cluster, dry=arguments.dry_run):
        show(f"{action:8}{name}")
    return 0


def watch_action(argv: Sequence[str]) -> int:
    parser = _parser("watch", "Checks every watched corpus once and starts a refresh of those that changed.")
    flag(parser, "--again", "retry a refresh that failed or was refused")
    arguments = parser.parse(argv)
    require_kfp()
    from stillhouse.kubeflow.pipelines.schedules.cluster import Kubeflow
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


ACTIONS: Mapping[str, Callable[[Sequence[str]], int]] = {"apply": apply_action, "watch": watch_action}
"""The actions, by name."""
