"""Recipes: YAML files that give each use of a step its settings, by name (shipped with the package) or by path."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillhouse.config import build, nearest, read_recipe, refuse_unknown_sections
from stillhouse.corpus.sources.built_in import SAMPLE
from stillhouse.errors import InputError
from stillhouse.steps.spec import Step
from stillhouse.workflow.graph import STAGES, graph_of, known_uses

Recipe = Mapping[str, Mapping[str, Any]]

SHIPPED = Path(__file__).resolve().parent.parent / "recipes"


def shipped_files(folder: Path) -> dict[str, Path]:
    """The YAML files of a folder of the package, by name without suffix."""
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_file(name: str, folder: Path, what: str) -> Path:
    """The file of a name: one that `folder` of the package holds, or a person's own, given by its path.

    Raises `InputError` when there is none; `what` says in its sentence what is looked for.
    """
    shipped = shipped_files(folder)
    if name in shipped:
        return shipped[name]
    if Path(name).is_file():
        return Path(name)
    raise InputError(f"there is no {what} {name!r}, neither a shipped one nor a file; {nearest(name, shipped)}")


def find_recipe(name: str) -> Path:
    """The file of a recipe. A name without a suffix means a shipped one. Raises `InputError` when there is none."""
    return find_file(name, SHIPPED, "recipe")


def load_recipe(path: Path) -> dict[str, dict[str, Any]]:
    """Reads the recipe of a whole run. Raises `InputError` for a section that is no use, and for wrong `stages`."""
    recipe = read_recipe(path)
    refuse_unknown_sections(recipe, [*known_uses(recipe, str(path)), STAGES], str(path))
    return recipe


def configs(recipe: Recipe, where: str) -> dict[str, Any]:
    """The settings of every use, checked; one without a section has its defaults.

    Those of the papers' run are there even where the recipe's `stages` leave them out: its `graph_of` says what is run.
    Raises `InputError` that names the nearest section, setting or value. `where` names the recipe in messages.
    """
    uses = known_uses(recipe, where)
    refuse_unknown_sections(recipe, [*uses, STAGES], where)
    return {
        name: build(use.step.config, recipe.get(use.section, {}), f"{where}: {use.section}")
        for name, use in uses.items()
    }


def sections(recipe: Recipe) -> list[str]:
    """The sections that the stages of a recipe's run read."""
    return list(dict.fromkeys(use.section for use in graph_of(recipe)))


def location_fields(step: Step) -> list[str]:
    """The settings of a step that say where something lies."""
    return [field.name for field in dataclasses.fields(step.config) if field.metadata.get("location")]


def moved(recipe: Recipe, start: Path, target: Path) -> dict[str, dict[str, Any]]:
    """The recipe with its relative locations, usable from folder `start`, made usable from folder `target`.

    A location that is no existing path (the name of a model on a hub, say) stays unchanged.
    """
    result = {name: dict(values) for name, values in recipe.items()}
    uses = known_uses(recipe)
    for name, values in result.items():
        for key in location_fields(uses[name].step) if name in uses else ():
            value = values.get(key)
            if value and value != SAMPLE and not Path(value).is_absolute() and (start / value).exists():
                values[key] = Path(os.path.relpath((start / value).resolve(), target.resolve())).as_posix()
    return result
