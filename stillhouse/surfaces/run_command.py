"""`stillhouse run`: the whole graph, or a part of it, in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from stillhouse.config import nearest
from stillhouse.errors import InputError
from stillhouse.graph import ARTIFACTS, USES, find_uses, needed
from stillhouse.surfaces.in_process import run_uses
from stillhouse.surfaces.parser import Parser
from stillhouse.surfaces.recipes import configs, find_recipe, load_recipe
from stillhouse.surfaces.small import small
from stillhouse.surfaces.step_command import add_context_flags, environment
from stillhouse.terminal import warn

EXAMPLES = """\
examples:
  stillhouse run --recipe micro --folder try-micro
  stillhouse run --recipe 001-msmarco --small --folder try-001     (every stage of a paper's recipe, on the sample)
  stillhouse run --recipe 002-wikipedia --source articles/ --until pretraining --folder 002-wikipedia"""


def run_parser() -> Parser:
    parser = Parser(
        "run",
        "Runs every step of the graph in this one process, without DVC. What is up to date is skipped.",
        EXAMPLES,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--recipe", metavar="NAME|FILE", help="a shipped recipe, or a file")
    which.add_argument("--params", metavar="FILE", type=Path, help="a recipe's file (default: params.yaml)")
    parser.add_argument("--source", metavar="SOURCE", help="another corpus than the recipe's")
    parser.add_argument("--until", metavar="USE", help="run this use and what it needs, not all")
    parser.add_argument(
        "--small", action="store_true", help="the recipe's stages in few steps on the built-in sample, to try them"
    )
    parser.add_argument(
        "--folder", metavar="FOLDER", type=Path, default=Path(), help="write artifacts/ there (default: here)"
    )
    add_context_flags(parser.add_argument_group("how it runs"))
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = run_parser().parse(argv)
    path = find_recipe(arguments.recipe) if arguments.recipe else arguments.params or Path("params.yaml")
    settings = configs(load_recipe(path), str(path))
    if arguments.small and arguments.source:
        raise InputError("--small runs on the built-in sample; leave --source out, or --small")
    if arguments.small:
        settings = {name: small(use, settings[name]) for name, use in find_uses().items()}
    if arguments.source:
        settings["ingest"] = dataclasses.replace(settings["ingest"], source=arguments.source)
    if arguments.until and arguments.until not in find_uses():
        raise InputError(f"--until {arguments.until}: no such use; {nearest(arguments.until, find_uses())}")
    uses = needed(USES, [arguments.until]) if arguments.until else USES
    with environment(arguments, arguments.folder):
        log = (lambda line: None) if arguments.quiet else warn
        run_uses(uses, settings, arguments.folder / ARTIFACTS, log)
    return 0
