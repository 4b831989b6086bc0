"""`stillhouse refresh`: updates the released retriever to its corpus, with as little work as needed."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.config import build
from stillhouse.core.context import quiet, say
from stillhouse.core.errors import REFUSED_CODE
from stillhouse.core.monitoring.activity import watched
from stillhouse.core.terminal import show
from stillhouse.pipeline.parser import Parser, flag, output_folder, source_text
from stillhouse.pipeline.step_command import add_context_flags, add_setting_flags, environment, given_settings
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.releases.refresh.plan import RULES, Thresholds

EXAMPLES = """\
examples:
  stillhouse refresh https://git.example/search/releases.git --plan-only
  stillhouse refresh . --revision 4f2c1d9 --folder refreshed
  stillhouse refresh . --fine-tune-above 0.05 --pretrain-above 0.5"""
SOURCE = ("source", "repo", "revision", "train_queries")


def refresh_parser() -> Parser:
    parser = Parser(
        "refresh",
        "Reads the corpus again and does what its changes require: nothing, a new index, fine-tuning or pre-training.\n"
        "Then releases the result, unless it is worse than the release in use.",
        EXAMPLES,
    )
    parser.add_argument(
        "releases", metavar="REPOSITORY", help="the git repository with the releases: a URL or a folder"
    )
    flag(parser, "--folder FOLDER", "the folder to work in (default: %(default)s)", output_folder, Path("refreshed"))
    flag(parser, "--branch NAME", "the branch to commit to (default: the repository's own)", default="")
    group = parser.add_argument_group("where the corpus comes from (default: as for the release in use)")
    flag(group, "--source SOURCE", "the source, or its path in --repo", source_text)
    flag(group, "--repo REPO", "a DVC repository")
    flag(group, "--revision REVISION", "its branch, tag or commit")
    flag(group, "--train-queries FOLDER", "extra train queries, written by `stillhouse queries export`", _absolute)
    group = parser.add_argument_group("how much work to do")
    add_setting_flags(group, Thresholds)
    flag(group, "--plan-only", "show what the refresh would do and exit")
    flag(group, "--again", "retry a corpus whose challenger was refused")
    add_rule_flags(parser.add_argument_group("when to refuse a challenger"))
    add_context_flags(parser.add_argument_group("how it runs"))
    return parser


def add_rule_flags(parser: argparse._ActionsContainer) -> None:
    """Adds flags for the settings of the step `compare-release`, which say when a challenger is refused."""
    add_setting_flags(parser, find_step("compare-release").config, RULES)


def rule_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The values of the flags that were given, in the types of the settings."""
    return given_settings(arguments, find_step("compare-release").config, RULES)


def _absolute(text: str) -> str:
    """Makes the path absolute, because the recipe is read in another folder."""
    return str(Path(text).expanduser().absolute()) if text else ""


def main(argv: Sequence[str]) -> int:
    from stillhouse.core.monitoring.watch import watch
    from stillhouse.pipeline.steps.spec import Report
    from stillhouse.releases.promotion import REFUSED
    from stillhouse.releases.refresh.run import Request, refresh

    arguments = refresh_parser().parse(argv)
    source = {name: getattr(arguments, name) for name in SOURCE if getattr(arguments, name) is not None}
    request = Request(
        repo=arguments.releases,
        folder=arguments.folder,
        branch=arguments.branch,
        source=source,
        thresholds=build(Thresholds, given_settings(arguments, Thresholds), "stillhouse refresh"),
        rules=rule_settings(arguments),
        plan_only=arguments.plan_only,
        again=arguments.again,
    )
    folder = arguments.folder.absolute()
    work = folder.with_name(f"{folder.name}.work")
    with environment(arguments, work), watched("refresh", quiet()), watch("refresh", say, task=True) as task:
        done = refresh(request, say)
        if done.outcome:
            task.report = Report(done.sentence, facts={"released": done.outcome.in_use})
    show(done.sentence)
    return REFUSED_CODE if done.outcome and done.outcome.kind == REFUSED else 0
