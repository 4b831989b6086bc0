"""`stillhouse tune`: searches the most important settings on the dev questions."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse import context
from stillhouse.artifacts import digest_json, write_whole
from stillhouse.context import Context, say
from stillhouse.errors import InputError
from stillhouse.lock import only_process
from stillhouse.monitoring.activity import watched, write_line
from stillhouse.terminal import show
from stillhouse.workflow.graph import ARTIFACTS
from stillhouse.workflow.parser import Parser, output_folder
from stillhouse.workflow.recipes import load_recipe
from stillhouse.workflow.step_command import add_context_flags, environment

if TYPE_CHECKING:
    from stillhouse.tuning.search import Search
    from stillhouse.tuning.trial import Place
    from stillhouse.tuning.trial_graph import TrialGraph

EXAMPLES = """\
Run this in a workspace. Each trial trains with different settings and ranks the dev questions, never the test
questions. The first trial uses the recipe's own settings, with the results of `dvc repro` if there are any. A trial
that is worse than half of the finished ones is stopped early. What no searched setting affects (corpus, BM25, the
starting model's index) is made once. To continue a stopped search, run the same command again, with more --minutes to
make it longer.

The more trials, the more of the gain on dev is due to chance: the last line of the output says how certain it is.
Confirm the result on the test questions, once.

examples:
  stillhouse tune                                    (retriever 1, half an hour of processor time)
  stillhouse tune --minutes 240 --retriever averaged (the whole chain, with the teacher's mix and the average's share)
  stillhouse tune --space my-space.yaml --trials 20  (stillhouse tune --show-space > my-space.yaml)
  stillhouse tune --minutes 60 --write               (writes the best settings to params.yaml and keeps its comments)"""


def tune_parser() -> Parser:
    parser = Parser("tune", "Tunes the most important settings on the dev questions.", EXAMPLES)
    what = parser.add_argument_group("what to search")
    what.add_argument(
        "--space", metavar="NAME|FILE", default="labelled", help="the settings and their ranges (default: %(default)s)"
    )
    what.add_argument("--show-space", action="store_true", help="print that file as a template for your own, and exit")
    what.add_argument("--retriever", metavar="STAGE", help="the stage whose retriever to measure (default: the file's)")
    what.add_argument(
        "--params",
        metavar="FILE",
        type=Path,
        default=Path("params.yaml"),
        help="the recipe file (default: %(default)s)",
    )
    how = parser.add_argument_group("how long")
    how.add_argument(
        "--minutes",
        metavar="X",
        type=float,
        default=30.0,
        help="processor time of all trials, divided by the number of threads; on a GPU, wall time "
        "(default: %(default)g)",
    )
    how.add_argument(
        "--trials",
        metavar="N",
        type=int,
        default=0,
        help="at most N trials besides the default settings (default: no limit)",
    )
    how.add_argument(
        "--seed", metavar="N", type=int, default=42, help="seed of the search; trials use the recipe's own"
    )
    then = parser.add_argument_group("results")
    then.add_argument(
        "--folder",
        metavar="FOLDER",
        type=output_folder,
        default=Path("tune"),
        help="the folder of the search (default: %(default)s)",
    )
    then.add_argument("--write", action="store_true", help="update params.yaml if better settings were found")
    add_context_flags(parser.add_argument_group("how it runs"))
    return parser


def main(argv: Sequence[str]) -> int:
    from stillhouse.tuning.space import find_space, read_space
    from stillhouse.tuning.trial_graph import trial_graph

    arguments = tune_parser().parse(argv)
    path = find_space(arguments.space)
    if arguments.show_space:
        show(*path.read_text(encoding="utf-8").splitlines())
        return 0
    refuse_flags(arguments)
    recipe = load_recipe(arguments.params)
    space = read_space(path, recipe)
    graph = trial_graph(recipe, str(arguments.params), space, arguments.retriever or "")
    missing = [one.key for one in space.parameters if one not in graph.space.parameters]
    if missing and not arguments.quiet:
        write_line(f"not searched, since {graph.space.retriever} does not depend on them: {', '.join(missing)}")
    return search_here(graph, arguments)


def refuse_flags(arguments: argparse.Namespace) -> None:
    """Raises `InputError` for values out of range."""
    if arguments.minutes <= 0 or arguments.trials < 0:
        raise InputError("--minutes must be above 0, --trials at least 0")
    if arguments.seed < 0:
        raise InputError(f"--seed must be at least 0, not {arguments.seed}")


def search_here(graph: TrialGraph, arguments: argparse.Namespace) -> int:
    from stillhouse.tuning.params_file import as_lines, with_settings
    from stillhouse.tuning.verdict import judge, sentence

    with only_process(arguments.folder), watched("tune", arguments.quiet):
        search = search_of(graph, arguments)
        with environment(argparse.Namespace(work=arguments.work, device=arguments.device, quiet=True)):
            search.run(arguments.trials)
    finished = search.finished()
    verdict = judge(finished[0], finished[1:])
    show(sentence(finished[0], verdict, search.tried() - 1, search.given_up()))
    if verdict is None or verdict.difference <= 0:
        return 0
    before = arguments.params.read_text(encoding="utf-8")
    after, edits = with_settings(before, verdict.best.settings, str(arguments.params))
    if arguments.write:
        write_whole(arguments.params, after)
        show(f"changed in {arguments.params}:", *as_lines(edits), "Next: dvc repro")
    else:
        show(f"Change these in {arguments.params}, or use --write:", *as_lines(edits))
    return 0


def search_of(graph: TrialGraph, arguments: argparse.Namespace) -> Search:
    """The search in its folder, new or resumed."""
    from stillhouse.tuning.clock import search_clock
    from stillhouse.tuning.search import Search
    from stillhouse.tuning.study import open_study

    place = prepared(graph, arguments)
    device = Context(context.work_root(), arguments.device or context.device()).torch_device().type
    study = open_study(place.folder, arguments.seed)
    log = (lambda line: None) if arguments.quiet else write_line
    seconds = 60 * arguments.minutes
    return Search(graph, place, study, search_clock(device), seconds, arguments.seed, log)


def prepared(graph: TrialGraph, arguments: argparse.Namespace) -> Place:
    """The search's folder, claimed, with the artifacts that all trials share."""
    from stillhouse.tuning.study import claim
    from stillhouse.tuning.trial import Place
    from stillhouse.tuning.trial_graph import make_shared

    place = Place(arguments.folder, Path(ARTIFACTS))
    space = [*map(repr, graph.space.parameters), repr(sorted(graph.space.always.items()))]
    recipe = digest_json([[name, repr(config)] for name, config in graph.base_configs()])
    about = {"recipe": recipe, "space": space, "retriever": graph.retriever}
    claim(place.folder, about)
    with environment(arguments, place.folder):
        claim(place.folder, about | {"data": make_shared(graph, place.workspace, place.shared, say)})
    return place
