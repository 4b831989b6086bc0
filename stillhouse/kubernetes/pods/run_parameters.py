"""The parameters that a person sets when a Kubeflow run is started: what each fills, and what it may be.

A recipe is fixed when a pipeline is compiled. Its few settings that a person wants to change from run to run are listed
here, those first that are changed most. Every other goes into one field as JSON, or is given as `--set` when a pipeline
is compiled: with the parameters of the pods the form of `train` has a dozen fields. Types, choices and ranges are those
of the steps' own settings. They are checked twice by the same code: by `stillhouse pipeline submit` before anything is
sent, and by the run's first task, for runs that the user interface or a schedule starts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stillhouse.config import check_value, field_types, nearest
from stillhouse.errors import InputError
from stillhouse.setting_kinds import as_form, form_type, from_form
from stillhouse.steps.registry import find_step
from stillhouse.workflow.graph import USES, Use, graph_of, known_uses
from stillhouse.workflow.recipe_settings import read_settings, with_sections
from stillhouse.workflow.recipes import Recipe, configs

Pair = tuple[str, str]
"""A use of the graph and one of its settings."""


@dataclass(frozen=True)
class RunParameter:
    """The setting of a step that a parameter fills in some uses, and what the run form says of it.

    The first use of `fills` gives its default.
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
        """That of the form's field."""
        return form_type(self.hint)

    @property
    def rules(self) -> Mapping[str, Any]:
        """Choices and range, as `config.check_value` takes them."""
        fields = dataclasses.fields(find_step(self.step).config)
        return next(entry.metadata for entry in fields if entry.name == self.field)

    @property
    def default(self) -> Any:
        """That of the step's own settings, as the form has it."""
        fields = dataclasses.fields(find_step(self.step).config)
        return as_form(next(entry.default for entry in fields if entry.name == self.field), self.hint)

    def read(self, value: Any, where: str) -> Any:
        """The setting's value from that of the field. Raises `InputError` for one that the setting may not have."""
        return check_value(from_form(value, self.hint, where), self.hint, self.rules, where)


RETRIEVER = "train-retriever"
MAIN = "retriever_1"
"""The retriever whose settings are the defaults of what is asked for all of them, where a recipe has it."""
COMMON: Mapping[str, RunParameter] = {
    "source": RunParameter(
        "the corpus: a folder or file on the work volume (/volume/…), or sample",
        "ingest",
        "source",
        ("ingest",),
    ),
    "queries": RunParameter(
        "questions to train on: source = labelled, pairs = made of the corpus, auto = made where none are",
        "ingest",
        "queries",
        ("ingest",),
    ),
    "test_queries": RunParameter(
        "a folder with test questions in BEIR layout; empty: those of the corpus",
        "ingest",
        "test_queries",
        ("ingest",),
    ),
    "model": RunParameter(
        "the model to begin with: a name on the hub, a folder on the work volume, or package:NAME",
        "fetch-model",
        "model",
        ("fetch_model",),
    ),
}


def train_parameters(uses: Sequence[Use]) -> dict[str, RunParameter]:
    """The parameters of a whole run of these uses; one that would fill nothing is left out."""
    there = [use.name for use in uses]
    trained = sorted((use.name for use in uses if use.step_name == RETRIEVER), key=lambda name: name != MAIN)
    seeded = [use for use in uses if "seed" in field_types(use.step.config)]
    # A recipe that ingests twice, before and after questions are generated, does so from one source.
    ingests = tuple(use.name for use in uses if use.section == "ingest")
    common = {
        name: dataclasses.replace(parameter, uses=ingests) if parameter.step == "ingest" else parameter
        for name, parameter in COMMON.items()
    }
    found = common | {
        "learning_rate": RunParameter(
            "the highest learning rate of every retriever", RETRIEVER, "learning_rate", tuple(trained)
        ),
        "training_steps": RunParameter(
            "steps of training of every retriever; empty: the recipe's epochs",
            RETRIEVER,
            "max_steps",
            tuple(trained),
        ),
        "seed": RunParameter(
            "seed of every random choice",
            seeded[0].step_name,
            "seed",
            tuple(use.name for use in seeded),
        ),
    }
    kept = {name: tuple(use for use in parameter.uses if use in there) for name, parameter in found.items()}
    return {name: dataclasses.replace(found[name], uses=names) for name, names in kept.items() if names}


SETTINGS = "settings"
SETTINGS_HELP = (
    "any other settings of the recipe, as JSON with the sections of params.yaml, which go before all fields: "
    '{"retriever_1": {"epochs": 8}}'
)
"""The field of a whole run for what has no field of its own."""
TRAIN: Mapping[str, RunParameter] = train_parameters(USES)
TABLES: Mapping[str, Mapping[str, RunParameter]] = {"train": TRAIN, "compare-objectives": COMMON}
"""By the name of the pipeline, for the papers' run; a recipe with `stages` has more uses to fill, or fewer."""


def filled(table: Mapping[str, RunParameter], settings: Mapping[str, Any]) -> dict[str, list[Pair]]:
    """The pairs that each parameter fills under a recipe's settings.

    A pair whose value differs there from the parameter's default keeps its own: the recipe set it apart.
    """
    return {
        name: [pair for pair in parameter.fills if value_of(settings, pair) == value_of(settings, parameter.fills[0])]
        for name, parameter in table.items()
    }


def value_of(settings: Mapping[str, Any], pair: Pair) -> Any:
    use, field = pair
    return getattr(settings[use], field)


def check_parameters(pipeline: str, values: Mapping[str, Any]) -> None:
    """Raises `InputError` for a value of the wrong type, or one outside its choices or range."""
    table = TABLES[pipeline]
    for name, value in values.items():
        if name not in table:
            raise InputError(f"pipeline {pipeline}: there is no parameter {name!r}; {nearest(name, table)}")
        table[name].read(value, f"pipeline {pipeline}: {name}")


def check_train(recipe: Recipe, where: str, values: Mapping[str, Any]) -> None:
    """Refuses parameters of a whole run of `recipe`, `settings` among them, as the run's steps would.

    Raises `InputError` for a value of the wrong type, outside its choices or range, or that does not go with others.
    """
    fields = {name: value for name, value in values.items() if name != SETTINGS}
    check_parameters("train", fields)
    sections = read_settings(str(values.get(SETTINGS, "")), recipe, where)
    pairs = filled(train_parameters(graph_of(recipe, where)), configs(recipe, where))
    uses = known_uses(recipe, where)
    open_pairs = {
        name: [(use, field) for use, field in filling if field not in sections.get(uses[use].section, {})]
        for name, filling in pairs.items()
    }
    with_parameters(open_pairs, configs(with_sections(recipe, sections), where), fields)


def with_parameters(
    pairs: Mapping[str, Sequence[Pair]], settings: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    """Builds the settings of every use as a run has them whose parameters fill these `pairs`.

    Raises `InputError` for settings that do not go together.
    """
    changed: dict[str, dict[str, Any]] = {}
    for name, filling in pairs.items():
        if name in values:
            for use, field in filling:
                hint = field_types(type(settings[use]))[field]
                changed.setdefault(use, {})[field] = from_form(values[name], hint, name)
    for use, fields in changed.items():
        try:
            dataclasses.replace(settings[use], **fields)
        except InputError as error:
            raise InputError(f"{', '.join(sorted(values))} do not go with the recipe: {use}: {error}") from None
