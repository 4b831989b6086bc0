"""`stillhouse release`: lists, promotes, rolls back and fetches releases of the retriever, and writes its card."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stillhouse.cli.refresh import add_rule_flags, rule_settings
from stillhouse.core.config import nearest
from stillhouse.core.context import quiet
from stillhouse.core.errors import REFUSED_CODE, InputError
from stillhouse.core.monitoring.activity import watched
from stillhouse.core.remote.git import Git
from stillhouse.core.terminal import show, visible_json, warn
from stillhouse.pipeline.parser import Parser, flag, output_folder, run_action
from stillhouse.pipeline.step_command import add_context_flags, environment
from stillhouse.releases.tags import read_history, roll_back

HELP = """\
usage: stillhouse release ACTION [--help] ...

actions:
  list      lists every release, newest first
  promote   releases what `dvc repro` made, unless it is worse than the release in use
  rollback  puts an earlier release back into use
  fetch     copies the artifacts of a release to a folder
  card      copies the winner of a run with a model card, for the Hugging Face Hub

examples:
  stillhouse release promote
  stillhouse release rollback --reason 'slow in production'
  stillhouse release fetch --target retriever-in-use --only retriever,index
  stillhouse release card --target our-retriever
"""


def main(argv: Sequence[str]) -> int:
    return run_action("release", HELP, ACTIONS, argv)


def _parser(action: str, description: str) -> Parser:
    parser = Parser(f"release {action}", description)
    flag(parser, "--folder FOLDER", "the workspace, in a git work tree (default: the current folder)", Path, Path())
    return parser


def list_action(argv: Sequence[str]) -> int:
    parser = _parser("list", "Lists every release, newest first; * marks the one in use.")
    flag(parser, "--json", "print JSON with all recorded details")
    arguments = parser.parse(argv)
    with watched("release", quiet()):
        history = read_history(Git.of(arguments.folder))
    champion = history.champion.tag if history.champion else ""
    if arguments.json:
        content = [
            release.record | {"tag": release.tag, "commit": release.commit, "champion": release.tag == champion}
            for release in reversed(history.releases)
        ]
        show(*visible_json(content, indent=2, sort_keys=True).split("\n"))
        return 0
    for release in reversed(history.releases):
        mark = "*" if release.tag == champion else " "
        show(f"{mark} {release.name:9} {release.commit[:10]}  {release.record['summary']}")
    if not history.releases:
        show("nothing is released yet; `stillhouse release promote` releases what `dvc repro` made")
    return 0


def promote_action(argv: Sequence[str]) -> int:
    parser = _parser("promote", "Releases what `dvc repro` made, unless it is worse than the release in use.")
    flag(parser, "--branch NAME", "the branch to commit to (default: the current one)", default="")
    parser.add_argument(
        "--bump", choices=("major", "minor", "patch"), default="major", help="which part of the version to increase"
    )
    add_rule_flags(parser.add_argument_group("when to refuse the release"))
    add_context_flags(parser.add_argument_group("how it runs"))
    arguments = parser.parse(argv)
    from stillhouse.core.monitoring.watch import watch
    from stillhouse.pipeline.steps.spec import Report
    from stillhouse.releases.promotion import REFUSED
    from stillhouse.releases.refresh.run import promote_whole_run

    with environment(arguments, arguments.folder), watched("release", quiet()):
        with watch("promote", warn, task=True) as task:
            outcome = promote_whole_run(
                arguments.folder, branch=arguments.branch, bump=arguments.bump, rules=rule_settings(arguments), log=warn
            )
            task.report = Report(outcome.reason, facts={"released": outcome.in_use})
        show(f"{outcome.kind}{f' {outcome.release.name}' if outcome.release else ''}: {outcome.reason}")
    return REFUSED_CODE if outcome.kind == REFUSED else 0


def rollback_action(argv: Sequence[str]) -> int:
    parser = _parser("rollback", "Puts the previous release, or the one given by --to, back into use.")
    flag(parser, "--to VERSION", "the release, such as v1.2.0 (default: the previous one)", default="")
    flag(parser, "--reason TEXT", "the reason to record", default="")
    arguments = parser.parse(argv)
    git = Git.of(arguments.folder)
    with watched("release", quiet()):
        before, now = roll_back(git, arguments.to, arguments.reason)
        if before.tag == now.tag:
            show(f"{now.name} is already in use; nothing to do")
        else:
            show(f"{now.name} is in use again, instead of {before.name}")
    return 0


def fetch_action(argv: Sequence[str]) -> int:
    parser = _parser("fetch", "Copies the artifacts of a release to a folder.")
    parser.add_argument(
        "version",
        nargs="?",
        metavar="VERSION",
        default="",
        help="the release, such as v1.2.0 (default: the one in use)",
    )
    flag(parser, "--target FOLDER", "the folder to copy to", output_folder, required=True)
    flag(parser, "--only NAMES", "copy only these, separated by commas: retriever,index", default="")
    arguments = parser.parse(argv)
    from stillhouse.releases.data import fetch_release

    git = Git.of(arguments.folder)
    with watched("release", quiet()):
        history = read_history(git)
    release = history.find(arguments.version) if arguments.version else history.champion
    if release is None:
        raise InputError("nothing is released yet; `stillhouse release promote` releases what `dvc repro` made")
    names = tuple(filter(None, arguments.only.split(",")))
    for name in names:
        if name not in release.paths:
            raise InputError(f"{release.name} holds no {name!r}; {nearest(name, release.paths)}")
    with watched("release", quiet()):
        fetch_release(git, release, arguments.target, names)
    show(f"{release.name}: {', '.join(names or release.paths)} in {arguments.target}")
    return 0


def card_action(argv: Sequence[str]) -> int:
    parser = _parser("card", "Copies the winner of a workspace's run with a model card, for the Hugging Face Hub.")
    flag(parser, "--target FOLDER", "the new folder to write; its name is the model's", output_folder, required=True)
    arguments = parser.parse(argv)
    from stillhouse.releases.model_card import export_winner

    with watched("release", quiet()):
        export_winner(arguments.folder, arguments.target)
    show(f"the model and its card are in {arguments.target}")
    return 0


ACTIONS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "list": list_action,
    "promote": promote_action,
    "rollback": rollback_action,
    "fetch": fetch_action,
    "card": card_action,
}
"""The actions, by name."""
