"""`stillhouse new`: a folder to work in."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.corpus.sources.built_in import SAMPLE
from stillhouse.corpus.sources.ir_datasets_id import SCHEME
from stillhouse.surfaces.parser import Parser, output_folder, source_text
from stillhouse.surfaces.recipe_choice import describe, fitted, recipe_for
from stillhouse.surfaces.workspace import make_workspace, refuse_missing, refuse_taken
from stillhouse.terminal import show

if TYPE_CHECKING:
    from stillhouse.corpus.first_look import FirstLook

Settings = Mapping[str, Mapping[str, Any]]
NOTHING: Settings = {}


def new_parser() -> Parser:
    parser = Parser(
        "new",
        "Makes a folder to work in: params.yaml (a recipe for your source), dvc.yaml, and a DVC repository.",
        "examples:\n"
        "  stillhouse new trial --source sample\n"
        "  stillhouse new manuals --source ~/manuals\n"
        "  stillhouse new msmarco --source ~/msmarco --recipe simlm-msmarco\n"
        "  stillhouse new manuals --source ~/manuals --hours 2\n"
        "  cd manuals && dvc repro\n\n"
        "Without --recipe it looks at the source: `labelled` where there are training questions, `unlabelled` where\n"
        "there are none. It says how long the run will take on this machine's processor.",
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
    parser.add_argument(
        "--hours",
        metavar="H",
        type=positive,
        help="train so much less that the whole run takes at most H hours on this machine",
    )
    return parser


def positive(text: str) -> float:
    """A number above 0. Raises `ArgumentTypeError` for another text."""
    with suppress(ValueError):
        if 0 < (number := float(text)) < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"must be a number above 0, as 0.5 or 3, not {text!r}")


def main(argv: Sequence[str]) -> int:
    arguments = new_parser().parse(argv)
    time = make(arguments.folder, arguments.source, arguments.recipe, arguments.hours)
    folder = shlex.quote(str(arguments.folder))
    show(f"made {folder}; the settings are in params.yaml there", *([time] if time else []), "Next:")
    show(f"    cd {folder} && dvc repro")
    return 0


def make(folder: Path, source: str | None, recipe: str | None, hours: float | None) -> str:
    """Makes the folder, shows what was seen of the source, and returns a line on the time that the run will take.

    Raises `InputError` as `make_workspace` does, and for hours that do not suffice.
    """
    own, time = NOTHING, ""
    if not recipe or hours:
        refuse_taken(folder)
        look = first_look(source)
        own = NOTHING if recipe else fitted(recipe_for(look), look)
        recipe = recipe or recipe_for(look)
        if look is not None:
            show(describe(recipe, look))
        own, time = timed(recipe, own, look, hours)
    make_workspace(folder, source, recipe, own)
    return time


def first_look(source: str | None) -> FirstLook | None:
    """What can be seen of a source in a few seconds; None of a data set of ir_datasets, which `ingest` fetches."""
    from stillhouse.corpus.first_look import look_at

    if source is not None and source.startswith(SCHEME):
        return None
    if source is not None:
        refuse_missing(source)
    return look_at(source or SAMPLE)


def timed(recipe: str, own: Settings, look: FirstLook | None, hours: float | None) -> tuple[Settings, str]:
    """The settings, `own` among them, with which a run fits into `hours`, and a line on the time that it will take."""
    from stillhouse.surfaces.recipes import find_recipe, load_recipe
    from stillhouse.surfaces.run_forecast import fit_into, forecast, with_settings

    whole = with_settings(load_recipe(find_recipe(recipe)), own)
    shorter = fit_into(hours, whole, look) if hours else NOTHING
    found = forecast(with_settings(whole, shorter), look)
    return with_settings(own, shorter), str(found) if found else ""
