"""The parameters that a user sets when starting a Kubeflow run: what each one fills, and its valid values.

A recipe is fixed when a pipeline is compiled. This module lists the few settings that change from run to run, the most
common ones first. All others go into one field as JSON, or into `--set` when the pipeline is compiled: together with
the pods' parameters, the form of `train` has about a dozen fields. Types, choices and ranges come from the steps'
settings. The same code checks them twice: in `stillhouse pipeline submit` before anything is sent, and in the run's
first task, for runs started from the user interface or by a schedule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stillhouse.core.config import check_value, field_types, nearest
from stillhouse.core.errors import InputError
from stillhouse.core.setting_kinds import as_form, form_type, from_form, plain
from stillhouse.pipeline.graph import USES, Use, graph_of, known_uses
from stillhouse.pipeline.recipe_settings import read_settings, with_sections
from stillhouse.pipeline.recipes import Recipe, configs
from stillhouse.pipeline.steps.registry import find_step

Pair = tuple[str, str]
"""A use of the graph and one of its settings."""


@dataclass(frozen=True)
class RunParameter:
    """The setting of a step that a parameter fills in some uses, and its help in the run form.

    The first use in `fills` provides the default.
    """

    help: str
    step: str
    field: str
    uses: tuple[str, ...]

    @property
    def fills(self) -> tuple[Pair, ...]:
        return tuple((use, self.field) for use in self.uses)

    @property
    def hint(self) -> Any:
        """The type of the setting."""
        return field_types(find_step(self.step).config)[self.field]

    @property
    def kind(self) -> type:
        """The type of the form's field."""
        return form_type(self.hint)

    @property
    def rules(self) -> Mapping[str, Any]:
        """Choices and range, as `config.check_value` expects them."""
        fields = dataclasses.fields(find_step(self.step).config)
        return next(entry.metadata for entry in fields if entry.name == self.field)

    @property
    def default(self) -> Any:
        """The default of the step's setting, as the form shows it."""
        fields = dataclasses.fields(find_step(self.step).config)
        return as_form(next(entry.default for entry in fields if entry.name == self.field), self.hint)

    def read(self, value: Any, where: str) -> Any:
        """The setting's value from the field's value. Raises `InputError` for an invalid value."""
        return check_value(from_form(value, self.hint, where), self.hint, self.rules, where)


RETRIEVER = "train-retriever"
MAIN = "retriever_1"
"""The retriever that provides the defaults of parameters for all retrievers, if a recipe has it."""
COMMON: Mapping[str, RunParameter] = {
    "source": RunParameter(
        "the corpus: a folder or file on the work volume (/volume/…), or sample",
        "ingest",
        "source",
        ("ingest",),
    ),
    "queries": RunParameter(
        "training queries: source = labelled, pairs = made from the corpus, auto = made if there are none",
        "ingest",
        "queries",
        ("ingest",),
    ),
    "test_queries": RunParameter(
        "a folder with test queries in BEIR layout; empty: from the corpus",
        "ingest",
        "test_queries",
        ("ingest",),
    ),
    "model": RunParameter(
        "the model to start from: a name on the hub, a folder on the work volume, or package:NAME",
        "fetch-model",
        "model",
        ("fetch_model",),
    ),
}


def train_parameters(uses: Sequence[Use]) -> dict[str, RunParameter]:
    """The parameters of a whole run of these uses, without those that would fill nothing."""
    there = [use.name for use in uses]
    trained = sorted((use.name for use in uses if use.step_name == RETRIEVER), key=lambda name: name != MAIN)
    seeded = [use for use in uses if "seed" in field_types(use.step.config)]
    # A recipe that ingests twice, before and after generating queries, does so from one source.
    ingests = tuple(use.name for use in uses if use.section == "ingest")
    common = {
        name: dataclasses.replace(parameter, uses=ingests) if parameter.step == "ingest" else parameter
        for name, parameter in COMMON.items()
    }
    found = common | {
        "learning_rate": RunParameter(
            "peak learning rate of every retriever", RETRIEVER, "learning_rate", tuple(trained)
        ),
        "training_steps": RunParameter(
            "training steps of every retriever; empty: the recipe's epochs",
            RETRIEVER,
            "max_steps",
            tuple(trained),
        ),
        "seed": RunParameter(
            "random seed of every step",
            seeded[0].step_name,
            "seed",
            tuple(use.name for use in seeded),
        ),
    }
    kept = {name: tuple(use for use in parameter.uses if use in there) for name, parameter in found.items()}
    return {name: dataclasses.replace(found[name], uses=names) for name, names in kept.items() if names}


SETTINGS = "settings"
SETTINGS_HELP = (
    "any other settings, as JSON with the sections of params.yaml; they override all other fields: "
    '{"retriever_1": {"epochs": 8}}'
)
"""The field of a whole run for settings without their own field."""
TRAIN: Mapping[str, RunParameter] = train_parameters(USES)
TABLES: Mapping[str, Mapping[str, RunParameter]] = {"train": TRAIN, "compare-objectives": COMMON}
"""By pipeline name, for the papers' run; a recipe with `stages` may have more or fewer uses to fill."""


def filled(table: Mapping[str, RunParameter], settings: Mapping[str, Any]) -> dict[str, list[Pair]]:
    """The pairs that each parameter fills under a recipe's settings.

    A pair keeps its own value if the recipe sets it to something other than the parameter's default.
    """
    return {
        name: [pair for pair in parameter.fills if value_of(settings, pair) == value_of(settings, parameter.fills[0])]
        for name, parameter in table.items()
    }


def value_of(settings: Mapping[str, Any], pair: Pair) -> Any:
    use, field = pair
    return getattr(settings[use], field)


def check_parameters(pipeline: str, values: Mapping[str, Any]) -> None:
    """Raises `InputError` for a value of the wrong type or outside its choices or range."""
    table = TABLES[pipeline]
    for name, value in values.items():
        if name not in table:
            raise InputError(f"pipeline {pipeline}: unknown parameter {name!r}; {nearest(name, table)}")
        table[name].read(value, f"pipeline {pipeline}: {name}")


def recipe_of_run(pipeline: str, recipe: Recipe, where: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of a run with these parameters, including `settings`, all of which it checks.

    Raises `InputError` for a value of the wrong type, outside its choices or range, or incompatible with others.
    """
    fields = {name: value for name, value in values.items() if name != SETTINGS}
    check_parameters(pipeline, fields)
    sections = read_settings(str(values.get(SETTINGS, "")), recipe, where)
    table = train_parameters(graph_of(recipe, where)) if pipeline == "train" else TABLES[pipeline]
    settings, uses = configs(recipe, where), known_uses(recipe, where)
    pairs = {
        name: [(use, field) for use, field in filling if field not in sections.get(uses[use].section, {})]
        for name, filling in filled(table, settings).items()
    }
    chosen = with_parameters(pairs, configs(with_sections(recipe, sections), where), fields)
    changed: dict[str, dict[str, Any]] = {}
    for name in pairs.keys() & fields.keys():
        for use, field in pairs[name]:
            changed.setdefault(uses[use].section, {})[field] = plain(getattr(chosen[use], field))
    return with_sections(with_sections(recipe, changed), sections)


def with_parameters(
    pairs: Mapping[str, Sequence[Pair]], settings: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of every use in a run whose parameters fill these `pairs`.

    Raises `InputError` for incompatible settings.
    """
    changed: dict[str, dict[str, Any]] = {}
    for name, filling in pairs.items():
        if name in values:
            for use, field in filling:
                hint = field_types(type(settings[use]))[field]
                changed.setdefault(use, {})[field] = from_form(values[name], hint, name)
    found = dict(settings)
    for use, fields in changed.items():
        try:
            found[use] = dataclasses.replace(settings[use], **fields)
        except InputError as error:
            raise InputError(f"{', '.join(sorted(values))} do not fit the recipe: {use}: {error}") from None
    return found
