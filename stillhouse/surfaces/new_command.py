"""`stillhouse new`: a folder to work in."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from stillhouse.corpus.sources.built_in import SAMPLE
from stillhouse.corpus.sources.ir_datasets_id import SCHEME
from stillhouse.surfaces.parser import Parser, output_folder, source_text
from stillhouse.surfaces.recipe_choice import describe, fitted, recipe_for
from stillhouse.surfaces.workspace import make_workspace, refuse_missing, refuse_taken
from stillhouse.terminal import show


def new_parser() -> Parser:
    parser = Parser(
        "new",
        "Makes a folder to work in: params.yaml (a recipe for your source), dvc.yaml, and a DVC repository.",
        "examples:\n"
        "  stillhouse new trial --source sample\n"
        "  stillhouse new manuals --source ~/manuals\n"
        "  stillhouse new msmarco --source ~/msmarco --recipe 001-msmarco\n"
        "  cd manuals && dvc repro\n\n"
        "Without --recipe it looks at the source: `labelled` where there are training questions, `unlabelled` where\n"
        "there are none, `sample` for the built-in sample.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=output_folder, help="the folder to make")
    parser.add_argument(
        "--source",
        metavar="SOURCE",
        type=source_text,
        help="the corpus to read; `sample` is the built-in one (default: the recipe's)",
    )
    parser.add_argument(
        "--recipe", metavar="NAME|FILE", help="a shipped recipe, or a file (default: what fits the source)"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = new_parser().parse(argv)
    if arguments.recipe:
        make_workspace(arguments.folder, arguments.source, arguments.recipe)
    else:
        refuse_taken(arguments.folder)
        recipe, own = chosen_recipe(arguments.source)
        make_workspace(arguments.folder, arguments.source, recipe, own)
    folder = shlex.quote(str(arguments.folder))
    show(f"made {folder}; the settings are in params.yaml there. Next:")
    show(f"    cd {folder} && dvc repro")
    return 0


def chosen_recipe(source: str | None) -> tuple[str, Mapping[str, Mapping[str, Any]]]:
    """The recipe that fits a source, and the settings that it needs there. Says what was seen."""
    if source is None or source == SAMPLE or source.startswith(SCHEME):
        return recipe_for(source, None), {}  # a data set of ir_datasets is fetched by `ingest`, not here
    from stillhouse.corpus.first_look import look_at

    refuse_missing(source)
    look = look_at(source)
    recipe = recipe_for(source, look)
    show(describe(recipe, look))
    return recipe, fitted(recipe, look)
