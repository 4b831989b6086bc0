"""`stillhouse tune`: searches the most important settings on the dev questions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.artifacts import write_whole
from stillhouse.core.errors import InputError
from stillhouse.core.lock import only_process
from stillhouse.core.monitoring.activity import watched, write_line
from stillhouse.core.terminal import show
from stillhouse.experiments.comparison.plan import merged
from stillhouse.pipeline.graph import ARTIFACTS
from stillhouse.pipeline.parser import Parser, flag, output_folder
from stillhouse.pipeline.recipes import find_file, load_recipe
from stillhouse.pipeline.step_command import add_context_flags, environment

if TYPE_CHECKING:
    from stillhouse.experiments.tuning.search import Search

EXAMPLES = """\
Run this in a workspace, after `stillhouse run`. Each trial trains with other settings and ranks the dev questions,
never the test questions. A trial that is worse than half of the finished ones is stopped early. To continue a stopped
search, run the same command again; to make it longer, with more --trials.

The more trials, the more of the gain on dev is due to chance: the output says how certain it is.
Confirm the result on the test questions, once.

examples:
  stillhouse tune                                    (retriever 1, 20 trials)
  stillhouse tune --space averaged --minutes 240     (the whole chain; no trial begins after four hours)
  stillhouse tune --space my-space.yaml              (stillhouse tune --show-space > my-space.yaml)"""


def tune_parser() -> Parser:
    parser = Parser("tune", "Tunes the most important settings on the dev questions.", EXAMPLES)
    flag(parser, "--space NAME|FILE", "the settings and their ranges (default: %(default)s)", default="labelled")
    flag(parser, "--show-space", "print this file as a template for your own, and exit")
    flag(parser, "--params FILE", "the recipe file (default: %(default)s)", Path, Path("params.yaml"))
    flag(parser, "--trials N", "number of trials, besides the recipe's own settings (default: 20)", int, 20)
    flag(parser, "--minutes X", "start no new trial after X minutes", float, 1e6)
    flag(parser, "--folder FOLDER", "the folder of the search (default: %(default)s)", output_folder, Path("tune"))
    add_context_flags(parser.add_argument_group("how it runs"))
    return parser


def main(argv: Sequence[str]) -> int:
    from stillhouse.experiments.tuning.search import Search
    from stillhouse.experiments.tuning.space import SPACES, read_space

    arguments = tune_parser().parse(argv)
    path = find_file(arguments.space, SPACES, "search space")
    if arguments.show_space:
        show(*path.read_text(encoding="utf-8").splitlines())
        return 0
    if arguments.trials < 1 or arguments.minutes <= 0:
        raise InputError("--trials must be at least 1, --minutes above 0")
    recipe = load_recipe(arguments.params)
    space = read_space(path, recipe)
    quiet = argparse.Namespace(work=arguments.work, device=arguments.device, quiet=True)
    with only_process(arguments.folder), watched("tune", arguments.quiet), environment(quiet, arguments.folder):
        search = Search(recipe, str(arguments.params), space, Path(ARTIFACTS), arguments.folder)
        search.run(arguments.trials, 60 * arguments.minutes, (lambda line: None) if arguments.quiet else write_line)
    show(*result(search, recipe))
    return 0


def result(search: Search, recipe: Mapping[str, Any]) -> list[str]:
    """The lines about the best trial, whose recipe is written to the search's folder."""
    import numpy as np
    import yaml

    from stillhouse.evaluation.samples import Samples
    from stillhouse.evaluation.significance import compare
    from stillhouse.experiments.tuning.search import RANKS, SETTINGS

    default, tried, finished = np.array(search.default), len(search.tried()), search.finished()
    start = f"the recipe's own settings have RR@10 {default.mean():.4f} on {len(default)} dev questions"
    if not finished or finished[0].value <= default.mean():
        return [f"None of {tried} trials is better; {start}."]
    best = finished[0]
    differences = np.array(best.user_attrs[RANKS])[:, None] - default[:, None]
    (found,) = compare(differences, Samples(10_000))
    path, settings = search.folder / "params.yaml", search.space.always | best.user_attrs[SETTINGS]
    write_whole(path, yaml.safe_dump(merged(recipe, settings), sort_keys=False))
    said = (
        f"The best of {tried} trials has RR@10 {best.value:.4f}; {start}: {found.difference:+.4f} (95 % interval "
        f"{found.low:+.4f} to {found.high:+.4f}), p = {min(1.0, tried * found.randomisation_p):.3f}, multiplied by "
        "the number of trials. The trial was chosen on these questions, so expect a smaller gain on others, and "
        "evaluate it on the test questions once."
    )
    values = [f"{key}: {value}" for key, value in settings.items()]
    follows = f"{path} holds the recipe with these settings. Next: cp {path} params.yaml && stillhouse run"
    return [said, *values, follows]
