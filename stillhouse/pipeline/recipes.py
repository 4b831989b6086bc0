"""Recipes: YAML files with the settings of each step, found by name (shipped) or by path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillhouse.core.config import build, nearest, read_recipe, refuse_unknown_sections
from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.options import SAMPLE
from stillhouse.pipeline.graph import GRAPH, STAGES, known_steps
from stillhouse.pipeline.steps.places import IN_REPOSITORY, location_fields

Recipe = Mapping[str, Any]
"""The settings of each section, and under `graph` the name of the graph."""

SHIPPED = Path(__file__).resolve().parent.parent / "recipes"


def shipped_files(folder: Path) -> dict[str, Path]:
    """The YAML files in a folder of the package, by name without suffix."""
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_file(name: str, folder: Path, what: str) -> Path:
    """The file with a name: a shipped one from `folder`, or a user's own, given by its path.

    Raises `InputError` if there is none; `what` names the kind of file in the message.
    """
    shipped = shipped_files(folder)
    if name in shipped:
        return shipped[name]
    if Path(name).is_file():
        return Path(name)
    raise InputError(f"there is no {what} {name!r}, neither shipped nor a file; {nearest(name, shipped)}")


def find_recipe(name: str) -> Path:
    """The file of a recipe. A name without a suffix means a shipped one. Raises `InputError` if it does not exist."""
    return find_file(name, SHIPPED, "recipe")


def load_recipe(path: Path) -> dict[str, Any]:
    """Reads the recipe of a whole run. Raises `InputError` for a section that names no step, and for invalid
    `stages`."""
    recipe = read_recipe(path)
    refuse_unknown_sections(recipe, [GRAPH, *known_steps(recipe, str(path)), STAGES], str(path))
    return recipe


def configs(recipe: Recipe, where: str) -> dict[str, Any]:
    """The checked settings of every step; a step without a section has its defaults.

    Raises `InputError` with the nearest section, setting or value. `where` names the recipe in messages.
    """
    steps = known_steps(recipe, where)
    refuse_unknown_sections(recipe, [GRAPH, *steps, STAGES], where)
    return {
        name: build(step.spec.config, recipe.get(step.section, {}), f"{where}: {step.section}")
        for name, step in steps.items()
    }


def copied(recipe: Recipe) -> dict[str, Any]:
    """A recipe whose sections may be changed."""
    return {name: values if name == GRAPH else dict(values) for name, values in recipe.items()}


def moved(recipe: Recipe, start: Path, target: Path) -> dict[str, Any]:
    """The recipe with its relative locations changed from folder `start` to folder `target`.

    A location that is not an existing path, such as the name of a model on a hub, stays unchanged. So does a path in a
    DVC repository.
    """
    result = copied(recipe)
    steps = known_steps(recipe)
    for name in result.keys() & steps.keys():
        values = result[name]
        elsewhere = {*IN_REPOSITORY} - {"repo"} if values.get("repo") else ()
        for key in location_fields(steps[name].spec):
            value = values.get(key)
            written = isinstance(value, str) and value not in ("", SAMPLE) and key not in elsewhere
            if written and not Path(value).is_absolute() and (start / value).exists():
                values[key] = Path(os.path.relpath((start / value).resolve(), target.resolve())).as_posix()
    return result
