"""Creates a workspace with a recipe that fits its source, and forecasts how long the run will take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.context import hush_libraries, quiet
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing, watched
from stillhouse.core.own_machine import own_memory
from stillhouse.core.terminal import show, warn
from stillhouse.corpus.sources.ir_datasets_id import SCHEME
from stillhouse.corpus.sources.options import SAMPLE
from stillhouse.pipeline.model_choice import chosen as chosen_start
from stillhouse.pipeline.model_choice import starts_of
from stillhouse.pipeline.recipe_choice import (
    describe,
    describe_few,
    describe_parts,
    describe_questions,
    describe_start,
    describe_writer,
    divided,
    fitted,
    recipe_for,
    unfit,
)
from stillhouse.pipeline.recipe_settings import with_sections
from stillhouse.pipeline.recipes import Recipe, configs, find_recipe, load_recipe
from stillhouse.pipeline.run_forecast import forecast, why_none, why_unseen
from stillhouse.pipeline.start_model import counted, unsuited
from stillhouse.pipeline.training_amount import described, fit_into, usual
from stillhouse.pipeline.workspace import make_workspace, refuse_inside, refuse_missing, refuse_taken

if TYPE_CHECKING:
    from stillhouse.corpus.first_look import FirstLook

Settings = Mapping[str, Mapping[str, Any]]
NOTHING: Settings = {}


def make(
    folder: Path,
    source: str | None,
    recipe: str | None,
    model: str | None,
    hours: float | None,
    questions: Path | None = None,
) -> list[str]:
    """Makes the folder, shows what was found in the source, and returns lines with the run's time.

    The log is never silent for ten seconds. Raises `InputError` as `make_workspace` does, for a model that cannot be
    the base model, and if the hours do not suffice.
    """
    hush_libraries()  # before the hub's is imported, which reads this once
    with watched("new", quiet()):
        own, start = NOTHING, None
        starts = starts_of(model) if model is not None else []
        refuse_taken(folder)
        refuse_inside(folder, source or "")
        look, why = of_recipe(source, recipe) if recipe else (first_look(source), "")
        if questions:
            look = with_questions(look, questions)
        if model is not None:
            start = chosen_start(starts, model, look, _ingest(source, recipe, look, questions), hours)
            own = {"fetch_model": {"model": start.name}}
        if recipe and start and (line := unfit(recipe, start)):
            warn(line)
        memory, named = own_memory(), recipe is not None
        recipe = recipe or recipe_for(look, start)
        if look is not None:
            look = counted(look, _settings(recipe, own)["fetch_model"].model)
        fits = NOTHING if named else fitted(recipe, look, memory, start)
        own = with_sections(own, fits)
        if look is not None:
            show(describe(recipe, look, fits), *look.notes)
            if line := unsuited(look, _settings(recipe, own)["fetch_model"].model):
                warn(line)
        lines = [] if named else [describe_start(start), describe_writer(recipe, look)]
        lines += [*describe_questions(fits, look), describe_parts(fits, memory), describe_few(look, source, questions)]
        show(*filter(None, lines))
        if questions:
            own = with_sections(own, {"ingest": {"dev_queries": str(questions)}})
        whole = with_sections(load_recipe(find_recipe(recipe)), own)
        if source is not None:
            whole = with_sections(whole, {"ingest": {"source": source}})
        amount = fit_into(hours, whole, look, why) if hours else {} if named else usual(whole, look)
        time = timed(with_sections(whole, amount), look, why)
        if hours and not amount:
            time.insert(0, "--hours changes nothing: the run trains as much as its recipe and its source allow")
        make_workspace(folder, source, recipe, with_sections(own, amount))
        return time


def with_questions(look: FirstLook | None, folder: Path) -> FirstLook | None:
    """A look with the dev questions of a folder that `stillhouse label` wrote.

    Raises `InputError` for another folder, and beside training questions.
    """
    from stillhouse.corpus.sources.labels import labels_in, read_labels
    from stillhouse.corpus.sources.rows import Query

    if look is not None and look.labelled:
        raise InputError(
            "--questions is for a source without training questions; from training questions, dev "
            "questions are set aside automatically"
        )
    files = labels_in("--questions", folder.expanduser(), "dev")
    if look is None or not look.whole:
        return look
    count = sum(isinstance(row, Query) for row in read_labels(files))
    return replace(look, questions={**look.questions, "dev": look.questions.get("dev", 0) + count})


@doing("inspecting the source")
def first_look(source: str | None) -> FirstLook | None:
    """What a few seconds of reading show about a source; None for a data set of ir_datasets, which `ingest` fetches."""
    from stillhouse.corpus.first_look import look_at

    if source is not None and source.startswith(SCHEME):
        return None
    if source is not None:
        refuse_missing(source)
    return look_at(source or SAMPLE)


def _ingest(source: str | None, recipe: str | None, look: FirstLook | None, questions: Path | None) -> Any:
    """The settings of `ingest` in a run of this source, for a choice among base models."""
    ingest = _settings(recipe or recipe_for(look))["ingest"]
    own = divided(look, ingest.dev_fraction) if look and not recipe else {}
    own |= {"dev_queries": str(questions)} if questions else {}
    return replace(ingest, **own, **({"source": source} if source is not None else {}))


def _settings(recipe: str, own: Settings = NOTHING) -> Mapping[str, Any]:
    """The settings of every step of a recipe, with `own` in place of some. Raises `InputError` for an invalid one."""
    path = find_recipe(recipe)
    return configs(with_sections(load_recipe(path), own), str(path))


def of_recipe(source: str | None, recipe: str) -> tuple[FirstLook | None, str]:
    """`first_look` at the source of a named recipe, or None and why nothing can be seen of it.

    Raises `InputError` for a source that was given and does not exist, and for an invalid recipe.
    """
    ingest = _settings(recipe)["ingest"]
    if source is not None and not ingest.repo:
        refuse_missing(source)
        ingest = replace(ingest, source=source)
    if why := why_unseen(ingest):
        return None, why
    try:
        return first_look(ingest.source), ""
    except (InputError, OSError) as error:  # the corpus may come later; `ingest` reports what is wrong with it
        return None, str(error)


def timed(whole: Recipe, look: FirstLook | None, why: str) -> list[str]:
    """Lines on how much a run of the recipe `whole` trains, and how long it takes.

    Without a look, `why` is the reason for that.
    """
    lines = described(whole, look)
    if found := forecast(whole, look):
        return [*lines, *found.lines()]
    why = why_none(configs(whole, "recipe"), look) or why
    return [*lines, f"no forecast of how long the run will take: {why}"]
