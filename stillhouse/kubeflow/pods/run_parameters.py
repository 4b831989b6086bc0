"""The parameters that a user sets when starting a Kubeflow run: what each one fills.

A recipe is fixed when a pipeline is compiled. This module lists the few settings that change from run to run. All
others go into one field as JSON, or into `--set` when the pipeline is compiled. Types, choices and ranges are those of
the steps' settings. The same code checks them twice: in `stillhouse pipeline submit` before anything is sent, and in
the run's first task, for runs started from the user interface or by a schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stillhouse.core.config import field_types, refuse_unknown
from stillhouse.core.setting_kinds import from_form, plain
from stillhouse.pipeline.graph import GraphStep, graph_of
from stillhouse.pipeline.recipe_settings import read_settings, with_sections
from stillhouse.pipeline.recipes import Recipe, configs

FORM: Mapping[str, tuple[str, str]] = {
    "source": ("ingest", "the corpus: a folder or file on the work volume (/volume/…), or sample for the built-in one"),
    "queries": (
        "ingest",
        "training queries: source = labelled, pairs = made from the corpus, auto = made if there are none",
    ),
    "test_queries": ("ingest", "a folder with test queries in BEIR layout; empty = those of the corpus"),
    "model": ("fetch_model", "the base model: a hub name, a folder on the work volume, or package:NAME"),
}
"""The settings with a field of their own: the section of each, and its help in the form."""
SETTINGS = "settings"
SETTINGS_HELP = (
    "other settings, as JSON with the sections of params.yaml; they override all other fields: "
    '{"retriever_1": {"epochs": 8}}'
)
"""The field of a whole run for settings without their own field."""


def parameters_of(recipe: Recipe, where: str) -> dict[str, GraphStep]:
    """The settings of `FORM` that a recipe's run has, each with a step that it fills; it fills all of that section."""
    of_section = {step.section: step for step in reversed(graph_of(recipe, where))}
    return {name: of_section[section] for name, (section, _) in FORM.items() if section in of_section}


def hint_of(step: GraphStep, name: str) -> Any:
    """The type of a setting."""
    return field_types(step.spec.config)[name]


def recipe_of_run(recipe: Recipe, where: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of a run with these parameters, including `settings`, all of which it checks.

    Raises `InputError` for a value of the wrong type, outside its choices or range, or incompatible with others.
    """
    known = parameters_of(recipe, where)
    for name in values.keys() - {SETTINGS}:
        refuse_unknown(name, known, f"{where}: unknown parameter")
    sections = read_settings(str(values.get(SETTINGS, "")), recipe, where)
    changed: dict[str, dict[str, Any]] = {}
    for name in known.keys() & values.keys():
        value = from_form(values[name], hint_of(known[name], name), f"{where}: {name}")
        changed.setdefault(known[name].section, {})[name] = plain(value)
    found = with_sections(with_sections(recipe, changed), sections)
    configs(found, where)
    return found
