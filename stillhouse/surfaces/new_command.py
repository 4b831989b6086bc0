"""`stillhouse new`: a folder to work in."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from stillhouse.surfaces.parser import Parser, output_folder, source_text
from stillhouse.surfaces.workspace import make_workspace
from stillhouse.terminal import show


def new_parser() -> Parser:
    parser = Parser(
        "new",
        "Makes a folder to work in: params.yaml (a recipe for your source), dvc.yaml, and a DVC repository.",
        "examples:\n"
        "  stillhouse new trial --source sample\n"
        "  stillhouse new manuals --source ~/manuals --recipe sample\n"
        "  stillhouse new articles --source ~/articles --recipe unlabelled   # nobody labelled queries for them\n"
        "  cd manuals && dvc repro",
    )
    parser.add_argument("folder", metavar="FOLDER", type=output_folder, help="the folder to make")
    parser.add_argument(
        "--source",
        metavar="SOURCE",
        type=source_text,
        help="the corpus to read; `sample` is the built-in one (default: the recipe's)",
    )
    parser.add_argument(
        "--recipe", default="sample", metavar="NAME|FILE", help="a shipped recipe, or a file (default: sample)"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = new_parser().parse(argv)
    make_workspace(arguments.folder, arguments.source, arguments.recipe)
    folder = shlex.quote(str(arguments.folder))
    show(f"made {folder}; the settings are in params.yaml there. Next:")
    show(f"    cd {folder} && dvc repro")
    return 0
