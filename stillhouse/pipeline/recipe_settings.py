"""Single settings that replace a recipe's: from a command line, `retriever_1.learning_rate=1e-5`, or a run form.

The form of a Kubeflow run has one field for all settings without a field of their own: JSON with sections and settings
as in `params.yaml`, `{"retriever_1": {"epochs": 8}}`.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from stillhouse.core.config import field_types, refuse_unknown
from stillhouse.core.errors import InputError
from stillhouse.core.setting_kinds import from_text, plain
from stillhouse.pipeline.graph import known_steps
from stillhouse.pipeline.parser import flag
from stillhouse.pipeline.recipes import Recipe, configs, copied

EXAMPLE = 'write {"retriever_1": {"epochs": 8}}, with sections and settings as in params.yaml'


def add_set_flag(parser: ArgumentParser) -> None:
    """Adds `--set`, whose values `with_settings` takes as `arguments.settings`."""
    flag(
        parser,
        "--set STAGE.SETTING=VALUE",
        "override a recipe setting, such as retriever_1.batch_size=64; can be repeated",
        dest="settings",
        many=True,
    )


def with_settings(recipe: Recipe, words: Sequence[str], where: str) -> dict[str, dict[str, Any]]:
    """The recipe with the settings in `words`, each `STAGE.SETTING=VALUE`; `where` names the recipe in messages.

    Raises `InputError` with the nearest step, setting or value, and for settings that do not go together.
    """
    changed = copied(recipe)
    steps = known_steps(recipe, where)
    given: set[str] = set()
    for word in words:
        place, equals, text = word.partition("=")
        name, dot, setting = place.partition(".")
        if not (equals and dot and setting) or place in given:
            raise InputError(f"--set {word}: write STAGE.SETTING=VALUE, like retriever_1.learning_rate=1e-5, each once")
        given.add(place)
        refuse_unknown(name, steps, f"--set {word}: {where} has no stage")
        kinds = field_types(steps[name].spec.config)
        refuse_unknown(setting, kinds, f"--set {word}: {name} has no setting")
        value = from_text(text, kinds[setting], f"--set {place}")
        changed.setdefault(steps[name].section, {})[setting] = plain(value)
        _refuse_measures(setting, value)
    configs(changed, f"{where} with --set")
    return changed


def read_settings(text: str, recipe: Recipe, where: str) -> dict[str, dict[str, Any]]:
    """The sections and settings in the field of a run form; empty for an empty field.

    Raises `InputError` for anything but JSON with sections, with the nearest section, setting or value for an unknown
    one, and for settings that do not go together with the recipe. `where` names it in messages.
    """
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError(f"settings is not valid JSON: {error}; {EXAMPLE}") from None
    if not isinstance(found, dict) or not all(isinstance(values, dict) for values in found.values()):
        raise InputError(f"settings must be sections that contain settings; {EXAMPLE}")
    known = {step.section for step in known_steps(recipe, where).values()}
    for section, values in found.items():
        refuse_unknown(section, known, f"settings: {where} has no section")
        for setting, value in values.items():
            _refuse_measures(setting, value)
    configs(with_sections(recipe, found), "settings")
    return found


def with_sections(recipe: Recipe, sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The recipe with these settings in place of its own."""
    return copied(recipe) | {name: {**recipe.get(name, {}), **values} for name, values in sections.items()}


def _refuse_measures(setting: str, value: Any) -> None:
    """Raises `InputError` for measures that do not exist; the step would notice only at the end of the run."""
    if setting == "measures":
        from stillhouse.evaluation.measures import parse_measures

        parse_measures(value if isinstance(value, (list, tuple)) else str(value))
