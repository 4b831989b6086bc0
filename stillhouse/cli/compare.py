"""`stillhouse compare`: compares pre-training objectives with one recipe, in one table and one page."""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from stillhouse.core.context import say
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import watched
from stillhouse.core.own_files import own_files, refuse_foreign_files
from stillhouse.core.terminal import show, warn
from stillhouse.experiments.comparison.plan import Plan, check_name, make_plan, plans
from stillhouse.experiments.comparison.run import Failure, Runner
from stillhouse.experiments.comparison.sweep import Sweep, filled
from stillhouse.experiments.comparison.sweeps import (
    find_sweep,
    listing,
    seeds_of,
    split_list,
    sweep_of_flags,
    under,
    with_retriever,
)
from stillhouse.pipeline.graph import ARTIFACTS
from stillhouse.pipeline.in_process import refuse_foreign_outputs
from stillhouse.pipeline.parser import Parser, flag, named_values, output_file, output_folder, source_text
from stillhouse.pipeline.recipes import find_recipe, load_recipe
from stillhouse.pipeline.small import small
from stillhouse.pipeline.step_command import add_context_flags, environment

EXAMPLES = """\
A comparison pre-trains with every objective and seed, fine-tunes each encoder the same way and evaluates one system of
each, --retriever, on the same queries. Unneeded steps are skipped, and shared inputs (corpus, tokens, negatives)
are made once. Running the same command again skips finished work. If a variant fails, the page shows why and the others
continue.

examples:
  stillhouse compare --objectives none,mlm,simlm,bow --seeds 1,2,3 --recipe simlm --folder compare/objectives
  stillhouse compare --objectives bow --vary pretraining.encoder_mlm_probability=0.15,0.3,0.45 --recipe simlm
  stillhouse compare --vary retriever_1.epochs=4,8 --retriever best --recipe labelled
  stillhouse compare --list
  stillhouse compare --sweep simlm-table7 --recipe simlm --source articles/
  stillhouse compare --sweep cdmae-table2 --small      (tries every stage of a paper's table on the sample)
  stillhouse compare --sweep cdmae-table2 --under bm25,mined"""


def compare_parser() -> Parser:
    parser = Parser(
        "compare", "Compares pre-training variants after the same fine-tuning, in one table and one page.", EXAMPLES
    )
    what = parser.add_argument_group("what to compare")
    flag(what, "--objectives A,B", "objectives to compare; none = no pre-training", default="")
    flag(
        what,
        "--vary STAGE.SETTING=V,W",
        "values to try for a setting; can be repeated, and every combination is a variant",
        many=True,
    )
    flag(what, "--sweep NAME|FILE", "a shipped sweep (see --list) or a sweep file")
    flag(what, "--list", "list the shipped sweeps and exit")
    flag(what, "--seeds N,M", "seeds for pre-training and fine-tuning (default: the sweep's, or 42)")
    flag(
        what,
        "--retriever NAME",
        "the system to measure, any that the recipe evaluates, such as reranked, averaged or best (default: the "
        "sweep's, or retriever_1)",
    )
    flag(what, "--under A,B", "run only these conditions of the sweep")
    flag(what, "--baseline NAME", "the variant to test the others against")
    flag(what, "--with WORD=VALUE", "an argument of the sweep; can be repeated", dest="given", many=True)
    base = parser.add_argument_group("recipe and corpus")
    flag(base, "--recipe NAME|FILE", "the recipe to vary (default: the sweep's own, or params.yaml)")
    flag(base, "--source SOURCE", "a corpus to use instead of the recipe's", source_text)
    flag(base, "--small", "try all stages with a few training steps on the built-in sample")
    flag(base, "--folder FOLDER", "where to write (default: compare/<sweep>)", output_folder)
    flag(
        parser.add_argument_group("with Kubeflow"),
        "--kubeflow FILE",
        "write the comparison as a Kubeflow pipeline instead of running it",
        output_file,
    )
    add_context_flags(parser.add_argument_group("how it runs"))
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = compare_parser().parse(argv)
    if arguments.list:
        show(*listing().split("\n"))
        return 0
    sweep = chosen_sweep(arguments)
    named = arguments.recipe or sweep.recipe
    path = find_recipe(named) if named else Path("params.yaml")
    if arguments.kubeflow:
        return hand_over(sweep, path, arguments)
    if arguments.small and arguments.source:
        raise InputError("--small uses the built-in sample; leave out --source or --small")
    recipe = _recipe(path, arguments.source, sweep)
    planned = plans(sweep, recipe, str(path), small if arguments.small else None)
    folder = arguments.folder or Path("compare") / sweep.name
    failed = run_here(sweep, planned, folder, arguments)
    if failed:
        jobs = sum(len(plan.jobs) for plan in planned.values())
        warn(f"stillhouse: {len(failed)} of {jobs} runs failed; the page says why")
        return InputError.exit_code if all(failure.bad_input for failure in failed) else 1
    return 0


def run_here(
    sweep: Sweep, planned: Mapping[str, Plan], folder: Path, arguments: argparse.Namespace
) -> Sequence[Failure]:
    """Runs the plan of each condition, writes a page for each, and returns the failures."""
    from stillhouse.experiments.comparison.page import PAGE

    for name, plan in planned.items():
        refuse_foreign_results(plan, folder, folder / name)
    found: list[Failure] = []
    written: list[Path] = []
    with environment(arguments, folder):
        runner = Runner(folder, say)
        for name, plan in planned.items():
            if name:
                say(f"condition {name}")
            failures = runner.run(plan)
            found += failures.values()
            if len(failures) == len(plan.jobs) and len(planned) > 1:
                say(f"condition {name}: no run finished; the lines above say why")
                continue
            from stillhouse.experiments.comparison.results import write_comparison

            with watched("compare", arguments.quiet), own_files(folder / name, results()) as staging:
                write_comparison(plan, failures, folder, staging)
            written.append(folder / name / PAGE)
    if not written:
        raise InputError(f"no run of sweep {sweep.name} finished; the lines above say why")
    show(f"the comparison is in {folder}; open {', '.join(map(str, written))}")
    return found


def hand_over(sweep: Sweep, path: Path, arguments: argparse.Namespace) -> int:
    """Compiles a comparison for Kubeflow and returns the exit code.

    Raises `InputError` if more than one condition of the sweep is selected.
    """
    from stillhouse.cli.pipeline import require_kfp

    require_kfp()
    if len(sweep.conditions) > 1:
        names = ", ".join(condition.name for condition in sweep.conditions)
        raise InputError(f"--kubeflow takes one condition of sweep {sweep.name}; choose one with --under: {names}")
    if arguments.small:
        raise InputError("--small only works on this machine; leave it out with --kubeflow")
    for condition in sweep.conditions:
        sweep = sweep.under(condition.name)
    plan = make_plan(sweep, _recipe(path, arguments.source, sweep), str(path))
    from stillhouse.kubeflow.pipelines.compare import compile_comparison

    compile_comparison(plan, arguments.kubeflow)
    show(f"wrote {arguments.kubeflow}; upload it in the Kubeflow user interface, or with `kfp pipeline create`")
    return 0


def chosen_sweep(arguments: argparse.Namespace) -> Sweep:
    """The sweep that the flags describe."""
    described = bool(arguments.objectives or arguments.vary)
    if described == bool(arguments.sweep):
        raise InputError(
            "give either --objectives and --vary, for example --objectives none,mlm,bow, or --sweep; "
            "`stillhouse compare --list` lists the shipped sweeps"
        )
    if described:
        name = arguments.folder.name if arguments.folder else ""
        sweep = sweep_of_flags(arguments.objectives, arguments.vary, check_name(name or "objectives"))
    else:
        sweep = find_sweep(arguments.sweep)
    if arguments.under:
        sweep = under(sweep, split_list(arguments.under, "--under"))
    sweep = filled(sweep, named_values(arguments.given, "--with"))
    if arguments.seeds:
        sweep = dataclasses.replace(sweep, seeds=seeds_of(arguments.seeds))
    if arguments.retriever:
        sweep = with_retriever(sweep, arguments.retriever)
    return dataclasses.replace(sweep, baseline=arguments.baseline) if arguments.baseline else sweep


def results() -> list[str]:
    """The files that the command writes besides the artifacts, as names for `own_files`."""
    from stillhouse.experiments.comparison.files import FILE
    from stillhouse.experiments.comparison.page import PAGE

    return [FILE, PAGE]


def refuse_foreign_results(plan: Plan, folder: Path, target: Path) -> None:
    """Raises `InputError`, before hours of work, if the results would replace files that Stillhouse did not write.

    `target` is where the page goes: `folder`, or the folder of a condition in it.
    """
    refuse_foreign_files(target, results())
    for job in (plan.reference, *plan.jobs):
        for step in job.steps:
            refuse_foreign_outputs([step], folder / job.places[step.name] / ARTIFACTS)


def _recipe(path: Path, source: str | None, sweep: Sweep) -> dict[str, dict[str, object]]:
    recipe = load_recipe(path)
    if source is not None:
        if any("ingest.source" in changes for changes in (sweep.overrides, *(of.overrides for of in sweep.conditions))):
            raise InputError(f"sweep {sweep.name} names its own corpora; leave --source out, or set them with --with")
        recipe["ingest"] = recipe.get("ingest", {}) | {"source": str(Path(source).expanduser())}
    return recipe
