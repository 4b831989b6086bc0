"""The command `stillhouse`: one sub-command per step, and some that use several steps.

Only the module of the called sub-command is imported. Help is therefore instant, and the pipelines and their platform
are required only by those who call them.
"""

import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from stillhouse import __version__
from stillhouse.core.config import nearest
from stillhouse.core.errors import (
    CRASH,
    INTERRUPTED,
    INTERRUPTION,
    InputError,
    ValidationFailed,
    access_errors,
    is_full_disk,
)
from stillhouse.core.terminal import NobodyReads, show, warn
from stillhouse.models.acceleration.threads import prepare_threads
from stillhouse.pipeline.steps.registry import steps

COMMANDS = {
    "new": ("creates a workspace: a recipe and dvc.yaml", "stillhouse.cli.new"),
    "models": ("lists good base models", "stillhouse.cli.models"),
    "label": (
        "shows passages so that you can write questions for them, to select the best retriever",
        "stillhouse.cli.label",
    ),
    "run": ("runs a recipe, or one of its stages", "stillhouse.cli.run"),
    "compare": ("compares pre-training objectives in one table and one page", "stillhouse.cli.compare"),
    "tune": ("tunes the most important settings on the dev questions", "stillhouse.cli.tune"),
    "zero-shot": ("evaluates retrievers and BM25 on many corpora", "stillhouse.cli.zero_shot"),
    "plan": ("writes what each stage computes, for DVC", "stillhouse.cli.plan"),
    "search": ("answers a question with ranked passages", "stillhouse.cli.search"),
    "serve": ("serves a release over HTTP", "stillhouse.cli.serve"),
    "publish": ("writes a release to a vector store", "stillhouse.cli.publish"),
    "queries": ("exports feedback on a service's answers, or its questions", "stillhouse.cli.queries"),
    "refresh": ("updates the released retriever when its corpus changes", "stillhouse.cli.refresh"),
    "release": ("lists, promotes, rolls back and fetches releases", "stillhouse.cli.release"),
    "schedule": ("syncs the cluster's schedules with a file and watches corpora", "stillhouse.cli.schedule"),
    "pipeline": ("compiles, submits or runs Kubeflow pipelines", "stillhouse.cli.pipeline"),
}
"""Commands that are not steps: one line of help, and the module whose `main(argv)` runs it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; `stillhouse.core.errors` lists them."""
    prepare_threads()
    try:
        with access_errors():
            return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        warn(INTERRUPTION)
        return INTERRUPTED
    except (InputError, ValidationFailed) as error:
        warn(f"stillhouse: {error}")
        return error.exit_code
    except NobodyReads:
        return CRASH
    except SystemExit as done:  # argparse exits this way after --help
        return int(done.code or 0)
    except Exception as error:
        if is_full_disk(error):
            where = f" ({error.filename})" if error.filename else ""
            message = f"the disk is full{where}; outputs are unchanged. Free some space and run the command again"
            warn(f"stillhouse: {message}")
            return CRASH
        warn(traceback.format_exc().rstrip("\n"))
        warn("stillhouse: this is a crash, not bad input; the lines above say where it happened")
        return CRASH


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        show(*overview().split("\n"))
        return 0
    if argv[0] == "--version":
        show(f"stillhouse {__version__}")
        return 0
    name, rest = argv[0], argv[1:]
    if name in steps():
        from stillhouse.pipeline import step_command

        return step_command.main(steps()[name], rest)
    if name in COMMANDS:
        return int(import_module(COMMANDS[name][1]).main(rest))
    kind = "flag" if name.startswith("-") else "command"
    raise InputError(
        f"stillhouse has no {kind} {name!r}; {nearest(name, [*steps(), *COMMANDS, '--help', '--version'])}"
    )


def overview() -> str:
    """What `stillhouse --help` prints."""
    rows = {name: step.help for name, step in steps().items()}
    others = {name: help for name, (help, _) in COMMANDS.items()}
    width = max(map(len, rows | others)) + 2
    listed = [
        "\n".join(f"  {name:{width}}{help.splitlines()[0]}" for name, help in table.items()) for table in (rows, others)
    ]
    return (
        "usage: stillhouse COMMAND [--help] ...\n\n"
        "Turns a text corpus into a distilled dense retriever and its search index.\n\n"
        f"commands:\n{listed[1]}\n\n"
        f"steps, in the order of a full run:\n{listed[0]}\n\n"
        "Start with `stillhouse new FOLDER --source SOURCE`, then `cd FOLDER && stillhouse run`.\n"
        "`stillhouse COMMAND --help` explains a command, its folders and its settings.\n\n"
        "exit codes: 0 done, 1 crash, 2 bad input, 3 validation failed, 4 promotion refused, 130 interrupted"
    )
