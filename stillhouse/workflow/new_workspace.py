"""Creates a workspace with a recipe that fits its source, and forecasts how long the run will take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.corpus.sources.built_in import SAMPLE
from stillhouse.corpus.sources.ir_datasets_id import SCHEME
from stillhouse.own_machine import own_memory
from stillhouse.terminal import show, warn
from stillhouse.workflow.recipe_choice import (
    describe,
    describe_parts,
    describe_questions,
    describe_start,
    fitted,
    recipe_for,
    unfit,
)
from stillhouse.workflow.start_model import start_of
from stillhouse.workflow.workspace import make_workspace, refuse_missing, refuse_taken

if TYPE_CHECKING:
    from stillhouse.corpus.first_look import FirstLook

Settings = Mapping[str, Mapping[str, Any]]
NOTHING: Settings = {}
WOULD_STOP = "the run would stop: first change the source or params.yaml, as said above"


def make(folder: Path, source: str | None, recipe: str | None, model: str | None, hours: float | None) -> str:
    """Makes the folder, shows what was found in the source, and returns a line with the run's time, or `WOULD_STOP`.

    Raises `InputError` as `make_workspace` does, for a model that cannot be the start, and if the hours do not suffice.
    """
    from stillhouse.workflow.run_forecast import with_settings

    own, start, time = NOTHING, None, ""
    if model is not None:
        model = str(Path(model).expanduser()) if model.startswith("~") else model
        start = start_of(model)
        own = {"fetch_model": {"model": model}}
    if recipe and start and (line := unfit(recipe, start)):
        warn(line)
    if not recipe or hours:
        refuse_taken(folder)
        look = first_look(source)
        memory = own_memory()
        chosen = recipe_for(look, start)
        fits = NOTHING if recipe else fitted(chosen, look, memory, start)
        own = with_settings(own, fits)
        if look is not None:
            show(describe(recipe or chosen, look, fits))
        if not recipe:
            show(describe_start(start))
        recipe = recipe or chosen
        for line in describe_questions(fits, look):
            show(line)
        if parts := describe_parts(fits, memory):
            show(parts)
        stops = lacking(recipe, own, look)
        for line in stops:
            warn(line)
        own, time = timed(recipe, own, look, hours)
        time = WOULD_STOP if stops else time
    make_workspace(folder, source, recipe, own)
    return time


def first_look(source: str | None) -> FirstLook | None:
    """What a few seconds show of a source; None for a data set of ir_datasets, which `ingest` fetches."""
    from stillhouse.corpus.first_look import look_at

    if source is not None and source.startswith(SCHEME):
        return None
    if source is not None:
        refuse_missing(source)
    return look_at(source or SAMPLE)


def lacking(recipe: str, own: Settings, look: FirstLook | None) -> list[str]:
    """Why a run of the recipe, with the settings `own`, would stop at its first steps."""
    from stillhouse.workflow.recipes import find_recipe, load_recipe
    from stillhouse.workflow.run_forecast import shortfalls, with_settings

    return shortfalls(with_settings(load_recipe(find_recipe(recipe)), own), look)


def timed(recipe: str, own: Settings, look: FirstLook | None, hours: float | None) -> tuple[Settings, str]:
    """The settings, including `own`, with which a run fits into `hours`, and a line with its expected time."""
    from stillhouse.workflow.recipes import find_recipe, load_recipe
    from stillhouse.workflow.run_forecast import fit_into, forecast, with_settings

    whole = with_settings(load_recipe(find_recipe(recipe)), own)
    shorter = fit_into(hours, whole, look) if hours else NOTHING
    found = forecast(with_settings(whole, shorter), look)
    return with_settings(own, shorter), str(found) if found else ""
