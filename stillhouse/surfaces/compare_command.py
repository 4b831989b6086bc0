"""`stillhouse compare`: pre-trainings side by side, from one recipe to one table and one page."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from stillhouse.comparison.sweep import Sweep, filled
from stillhouse.errors import InputError
from stillhouse.graph import ARTIFACTS
from stillhouse.monitoring.activity import watched, write_line
from stillhouse.own_files import own_files, refuse_foreign_files
from stillhouse.surfaces.compare_plan import EVALUATION, PRETRAINING, Plan, check_name, make_plan
from stillhouse.surfaces.compare_run import TIMINGS, Failure, Runner, read_timings, refuse_foreign_use
from stillhouse.surfaces.parser import Parser, output_file, output_folder, source_text
from stillhouse.surfaces.recipes import Recipe, find_recipe, load_recipe
from stillhouse.surfaces.step_command import add_context_flags, environment
from stillhouse.surfaces.sweeps import find_sweep, listing, only, seeds_of, split_list, sweep_of_flags, with_baseline
from stillhouse.terminal import show, warn

EXAMPLES = """\
A comparison pre-trains with every objective under every seed, fine-tunes each encoder the same way, and measures the
retrievers on the same queries. What they have in common (corpus, tokens, negatives) is made once. What is done is
skipped when the same command is given again; a variant that fails is shown with its reason and the others go on.

examples:
  stillhouse compare --objectives none,mlm,simlm,bow --seeds 1,2,3 --recipe simlm --folder compare/objectives
  stillhouse compare --objectives bow --vary pretraining.encoder_mask=0.15,0.3,0.45 --recipe simlm
  stillhouse compare --list
  stillhouse compare --sweep 001-table7 --recipe simlm --source articles/
  stillhouse compare --sweep 001-table7 --dvc        (in a workspace that git tracks: queues DVC experiments)"""


def compare_parser() -> Parser:
    parser = Parser(
        "compare", "Compares pre-trainings after the same fine-tuning, in one table and one page.", EXAMPLES
    )
    what = parser.add_argument_group("what is compared")
    what.add_argument("--objectives", metavar="A,B", default="", help="objectives; none = no pre-training")
    what.add_argument(
        "--vary",
        metavar="USE.FIELD=V,W",
        action="append",
        default=[],
        help="values of any setting of the recipe; may be given again: every combination is a variant",
    )
    what.add_argument("--sweep", metavar="NAME|FILE", help="a shipped sweep (see --list), or a file")
    what.add_argument("--list", action="store_true", help="show the shipped sweeps and leave")
    what.add_argument(
        "--seeds", metavar="N,M", help="seeds of pre-training and fine-tuning (default: the sweep's, or 42)"
    )
    what.add_argument("--only", metavar="A,B", help="some of the sweep's variants")
    what.add_argument("--baseline", metavar="NAME", help="the variant that the others are tested against")
    what.add_argument(
        "--with", metavar="WORD=VALUE", dest="given", action="append", default=[], help="a sweep's argument"
    )
    base = parser.add_argument_group("on what")
    base.add_argument(
        "--recipe", metavar="NAME|FILE", help="the recipe that the variants change (default: params.yaml)"
    )
    base.add_argument("--source", metavar="SOURCE", type=source_text, help="another corpus than the recipe's")
    base.add_argument("--folder", metavar="FOLDER", type=output_folder, help="write there (default: compare/<sweep>)")
    parser.add_argument_group("with DVC").add_argument(
        "--dvc",
        action="store_true",
        help="queue one DVC experiment a variant and seed in the workspace of --folder or here",
    )
    parser.add_argument_group("with DVC").add_argument(
        "--dry-run", action="store_true", help="with --dvc: print the commands and queue nothing"
    )
    parser.add_argument_group("with Kubeflow").add_argument(
        "--kubeflow",
        metavar="FILE",
        type=output_file,
        help="write the comparison as a Kubeflow pipeline and run nothing here",
    )
    add_context_flags(parser.add_argument_group("how it runs"))
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = compare_parser().parse(argv)
    workspace = arguments.folder if arguments.dvc and arguments.folder else Path()
    path = find_recipe(arguments.recipe) if arguments.recipe else workspace / "params.yaml"
    if arguments.list:
        recipe: Recipe = load_recipe(path) if path.is_file() else {}
        show(*listing(recipe, str(path)).split("\n"))
        return 0
    plan = make_plan(chosen_sweep(arguments), _recipe(path, arguments.source), str(path))
    if arguments.dvc:
        from stillhouse.surfaces.compare_dvc import queue

        return queue(plan, arguments.folder or Path(), print, dry_run=arguments.dry_run)
    if arguments.kubeflow:
        # By name, since the library is imported by the pipelines and not the other way round.
        import_module("pipelines.compare").compile_comparison(plan, arguments.kubeflow)
        show(f"wrote {arguments.kubeflow}; upload it in the Kubeflow user interface, or with `kfp pipeline create`")
        return 0
    if arguments.dry_run:
        raise InputError("--dry-run goes with --dvc; without it a comparison skips what is done, so just start it")
    folder = arguments.folder or Path("compare") / plan.sweep.name
    log = (lambda line: None) if arguments.quiet else write_line
    refuse_foreign_results(plan, folder)
    with environment(arguments, folder):
        failures = Runner(folder, log).run(plan)
        with watched("compare", arguments.quiet), own_files(folder, results()) as staging:
            page = write_comparison(plan, failures, folder, staging)
    show(f"the comparison is in {folder}; open {folder / page.name}")
    if failures:
        warn(f"stillhouse: {len(failures)} of {len(plan.jobs)} runs failed; the page says why")
        return InputError.exit_code if all(failure.bad_input for failure in failures.values()) else 1
    return 0


def chosen_sweep(arguments: argparse.Namespace) -> Sweep:
    """The sweep that the flags ask for."""
    described = bool(arguments.objectives or arguments.vary)
    if described == bool(arguments.sweep):
        raise InputError(
            "say what to compare: either --objectives (and --vary), for instance --objectives none,mlm,bow, "
            "or --sweep; `stillhouse compare --list` shows the shipped ones"
        )
    if described:
        name = arguments.folder.name if arguments.folder and not arguments.dvc else ""
        sweep = sweep_of_flags(arguments.objectives, arguments.vary, check_name(name or "objectives"))
    else:
        sweep = find_sweep(arguments.sweep)
    given = {}
    for text in arguments.given:
        word, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--with {text}: write word=value")
        given[word] = value
    sweep = filled(sweep, given)
    if arguments.seeds:
        sweep = dataclasses.replace(sweep, seeds=seeds_of(arguments.seeds))
    if arguments.only:
        sweep = only(sweep, split_list(arguments.only, "--only"))
    return with_baseline(sweep, arguments.baseline) if arguments.baseline else sweep


def results() -> list[str]:
    """What the command writes beside the artifacts, as `own_files` takes it."""
    from stillhouse.comparison.files import FILES
    from stillhouse.comparison.page import PAGE

    return [*FILES, PAGE]


def refuse_foreign_results(plan: Plan, folder: Path) -> None:
    """Raises `InputError` where something of others would be replaced: before hours of work."""
    refuse_foreign_files(folder, [*results(), TIMINGS])
    for job in (plan.reference, *plan.jobs):
        for name, place in job.places.items():
            refuse_foreign_use(folder, folder / place / ARTIFACTS / name)
            refuse_foreign_use(folder, folder / job.place / ARTIFACTS / name)


def write_comparison(plan: Plan, failures: Mapping[tuple[str, int], Failure], folder: Path, target: Path) -> Path:
    """Reads what the jobs left in `folder` and writes the table and the page to `target`; returns the page's path.

    Raises `InputError` when no job has a result.
    """
    from stillhouse.artifacts import read_manifest
    from stillhouse.comparison.files import write_files
    from stillhouse.comparison.outcomes import Outcome, read_outcome, read_per_query
    from stillhouse.comparison.page import write_page
    from stillhouse.comparison.queries import variant_examples
    from stillhouse.comparison.table import Settings, make_table
    from stillhouse.corpus.schemas import SOURCE

    timings, outcomes = read_timings(folder), []
    for job in plan.jobs:
        if failure := failures.get((job.variant, job.seed)):
            outcomes.append(Outcome(variant=job.variant, seed=job.seed, failure=f"{failure.use}: {failure.reason}"))
            continue
        curves, evaluation = job.output(PRETRAINING, "curves"), job.output(EVALUATION, "evaluation")
        assert evaluation is not None
        timing = timings.get(job.places[PRETRAINING].as_posix()) if curves else None
        outcomes.append(
            read_outcome(job.variant, job.seed, folder / evaluation, folder / curves if curves else None, timing)
        )
    reference = folder / plan.reference.place / ARTIFACTS / EVALUATION / "evaluation"
    references = {system: splits["test"] for system, splits in read_per_query(reference).items() if "test" in splits}
    config = plan.reference.configs[EVALUATION]
    settings = Settings(config.bootstrap_samples, config.randomisation_samples, config.seed)
    synthetic = read_manifest(reference, verify=False).facts["labels"] != SOURCE
    table = make_table(plan.sweep, outcomes, references, settings, synthetic=synthetic)
    write_files(table, target)
    runs = {
        job.variant: folder / job.places[name] / ARTIFACTS / name / "run"
        for job in reversed(plan.jobs)  # so that the first seed stays
        for name in [f"{plan.sweep.retriever}_run"]
        if (job.variant, job.seed) not in failures
    }
    corpus = folder / plan.reference.place / ARTIFACTS / "ingest" / "corpus"
    return write_page(table, outcomes, target, variant_examples(table, corpus, runs))


def _recipe(path: Path, source: str | None) -> dict[str, dict[str, object]]:
    recipe = load_recipe(path)
    if source is not None:
        recipe["ingest"] = recipe.get("ingest", {}) | {"source": str(Path(source).expanduser())}
    return recipe
