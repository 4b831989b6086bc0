"""`stillhouse run`: the whole graph in this process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from stillhouse.surfaces.in_process import run_graph
from stillhouse.surfaces.parser import Parser
from stillhouse.surfaces.recipes import configs, find_recipe, load_recipe
from stillhouse.surfaces.step_command import add_context_flags, environment


def run_parser() -> Parser:
    parser = Parser(
        "run",
        "Runs every step of the graph in this one process, without DVC. What is up to date is skipped.",
        "example:\n  stillhouse run --recipe micro --folder try-micro",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--recipe", metavar="NAME|FILE", help="a shipped recipe, or a file")
    which.add_argument("--params", metavar="FILE", type=Path, help="a recipe's file (default: params.yaml)")
    parser.add_argument(
        "--folder", metavar="FOLDER", type=Path, default=Path(), help="write artifacts/ there (default: here)"
    )
    add_context_flags(parser.add_argument_group("how it runs"))
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = run_parser().parse(argv)
    path = find_recipe(arguments.recipe) if arguments.recipe else arguments.params or Path("params.yaml")
    settings = configs(load_recipe(path), str(path))
    if arguments.work is None:
        arguments.work = arguments.folder / ".stillhouse" / "work"
    with environment(arguments):
        run_graph(settings, arguments.folder, lambda line: None if arguments.quiet else print(line, file=sys.stderr))
    return 0
