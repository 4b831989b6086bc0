"""`stillhouse zero-shot`: evaluates retrievers and BM25 on many corpora that they were not trained on (CDMAE Table
3)."""

from collections.abc import Sequence

from stillhouse.core.context import say
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import watched
from stillhouse.core.own_files import own_files
from stillhouse.core.terminal import show, warn
from stillhouse.experiments.zero_shot.arguments import zero_shot_arguments
from stillhouse.experiments.zero_shot.plan import checked_plan, refuse_foreign_results, results, run_plan, write_results
from stillhouse.pipeline.graph import ARTIFACTS
from stillhouse.pipeline.step_command import environment


def main(argv: Sequence[str]) -> int:
    arguments = zero_shot_arguments(argv)
    plan, baseline = checked_plan(arguments)
    refuse_foreign_results(plan, arguments.folder)
    with environment(arguments, arguments.folder):
        failures = run_plan(plan, arguments.folder / ARTIFACTS, arguments.max_rejected, say)
        with watched("zero-shot", arguments.quiet), own_files(arguments.folder, results()) as staging:
            page = write_results(plan, arguments, baseline, failures, staging)
    for name, failure in failures.items():
        warn(f"stillhouse: {name} failed at {failure.step}: {failure.reason}")
    if page:
        show(f"the figures are in {arguments.folder}; open {arguments.folder / page.name}")
    if failures:
        warn(f"stillhouse: {len(failures)} of {len(plan.runs)} corpora failed")
        return InputError.exit_code if all(failure.bad_input for failure in failures.values()) else 1
    return 0
