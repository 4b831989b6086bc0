"""`stillhouse run`: runs a recipe, or one of its stages, in this process."""

from collections.abc import Sequence
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.pipeline.graph import ARTIFACTS, graph_of
from stillhouse.pipeline.parser import Parser, flag, output_folder, source_text
from stillhouse.pipeline.recipe_run import chosen_steps, run_recipe, steps_of_stage
from stillhouse.pipeline.recipe_settings import add_set_flag, with_sections, with_settings
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe
from stillhouse.pipeline.small import small
from stillhouse.pipeline.step_command import add_context_flags, add_engine_flag, environment
from stillhouse.pipeline.workspace import refuse_inside

EXAMPLES = """\
examples:
  stillhouse run --recipe micro --folder try-micro
  stillhouse run --recipe simlm-msmarco --small --folder try-simlm     (every stage of a paper's recipe, on the sample)
  stillhouse run --set retriever_1.epochs=8                            (params.yaml with one setting changed)
  stillhouse run retriever_1                                           (one stage, as dvc.yaml does)
  stillhouse run --recipe bow-wikipedia --source articles/ --folder bow-wikipedia
  stillhouse run --until retriever_1                                   (only what it needs)"""


def run_parser() -> Parser:
    parser = Parser(
        "run", "Runs every stage of a recipe in one process, or only STAGE. Skips steps that are up to date.", EXAMPLES
    )
    parser.add_argument(
        "stage", metavar="STAGE", nargs="?", help="run only this stage, on the outputs of earlier stages"
    )
    which = parser.add_mutually_exclusive_group()
    flag(which, "--recipe NAME|FILE", "a shipped recipe or a recipe file")
    flag(which, "--params FILE", "a recipe file (default: params.yaml)", Path)
    flag(parser, "--source SOURCE", "a corpus to use instead of the recipe's", source_text)
    add_set_flag(parser)
    flag(parser, "--until STEP", "run only this step and what it depends on")
    flag(parser, "--small", "try every stage with a few training steps on the built-in sample")
    flag(parser, "--folder FOLDER", "where to write artifacts/ (default: the current folder)", output_folder, Path())
    group = parser.add_argument_group("how it runs")
    add_context_flags(group)
    add_engine_flag(group)
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = run_parser().parse(argv)
    path = find_recipe(arguments.recipe) if arguments.recipe else arguments.params or Path("params.yaml")
    recipe = with_settings(load_recipe(path), arguments.settings, str(path))
    if arguments.source:
        recipe = with_sections(recipe, {"ingest": {"source": arguments.source}})
    settings, steps = configs(recipe, str(path)), graph_of(recipe, str(path))
    if arguments.small and arguments.source:
        raise InputError("--small uses the built-in sample; leave out --source or --small")
    if arguments.small:
        settings |= {step.name: small(step, settings[step.name]) for step in steps}
    if arguments.stage and arguments.until:
        raise InputError("give a STAGE or --until, not both")
    chosen = steps_of_stage(steps, arguments.stage) if arguments.stage else chosen_steps(steps, arguments.until)
    typed = {"source"} if arguments.source else set()
    if arguments.source and not recipe.get("ingest", {}).get("repo"):
        refuse_inside(arguments.folder, arguments.source)
    with environment(arguments, arguments.folder):
        run_recipe(chosen, settings, arguments.folder / ARTIFACTS, path, typed, steps if arguments.stage else ())
    return 0
