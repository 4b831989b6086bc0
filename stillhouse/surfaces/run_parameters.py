"""The parameters that a person sets when a Kubeflow run is started: what each fills, and what it may be.

A recipe is fixed when a pipeline is compiled. Its few settings that a person wants to change from run to run are listed
here; their types, choices and ranges are those of the steps' own settings. They are checked twice by the same code:
by `stillhouse pipeline submit` before anything is sent, and by the run's first task, for runs that the user interface
or a schedule starts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stillhouse.config import check_value, field_types, nearest
from stillhouse.errors import InputError
from stillhouse.graph import USES, Use
from stillhouse.steps.registry import find_step

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
    def kind(self) -> type:
        return field_types(find_step(self.step).config)[self.field]

    @property
    def rules(self) -> Mapping[str, Any]:
        """Choices and range, as `config.check_value` takes them."""
        fields = dataclasses.fields(find_step(self.step).config)
        return next(entry.metadata for entry in fields if entry.name == self.field)

    @property
    def default(self) -> Any:
        """That of the step's own settings."""
        fields = dataclasses.fields(find_step(self.step).config)
        return next(entry.default for entry in fields if entry.name == self.field)


PRETRAINED, RETRIEVER = ("pretraining",), "train-retriever"
MAIN = "retriever_1"
"""The retriever whose settings are the defaults of what is asked for all of them, where a recipe has it."""
COMMON: Mapping[str, RunParameter] = {
    "source": RunParameter(
        "the corpus: a folder or file on the work volume, or `sample`", "ingest", "source", ("ingest",)
    ),
    "queries": RunParameter(
        "train queries: source = labelled ones, pairs = made of the corpus, auto = pairs where there are none",
        "ingest",
        "queries",
        ("ingest",),
    ),
    "test_queries": RunParameter(
        "a folder with labelled test queries in BEIR layout", "ingest", "test_queries", ("ingest",)
    ),
    "model": RunParameter(
        "the starting model: a name on the hub, a folder on the work volume, or package:NAME",
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
        "objective": RunParameter("the pre-training objective, as simlm or cdmae", "pretrain", "objective", PRETRAINED),
        "pretraining_steps": RunParameter("steps of pre-training; 0 = by epochs", "pretrain", "max_steps", PRETRAINED),
        "pretraining_learning_rate": RunParameter(
            "peak learning rate of pre-training", "pretrain", "learning_rate", PRETRAINED
        ),
        "learning_rate": RunParameter(
            "peak learning rate of every retriever", RETRIEVER, "learning_rate", tuple(trained)
        ),
        "training_steps": RunParameter(
            "steps of every retriever; 0 = by epochs", RETRIEVER, "max_steps", tuple(trained)
        ),
        "seed": RunParameter(
            "seed of every random choice", seeded[0].step_name, "seed", tuple(use.name for use in seeded)
        ),
        "measures": RunParameter("measures of the evaluation, spaces between", "evaluate", "measures", ("evaluate",)),
        "title": RunParameter("title of the report", "evaluate", "title", ("evaluate",)),
    }
    kept = {name: tuple(use for use in parameter.uses if use in there) for name, parameter in found.items()}
    return {name: dataclasses.replace(found[name], uses=names) for name, names in kept.items() if names}


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
        check_value(value, table[name].kind, table[name].rules, f"pipeline {pipeline}: {name}")
        if name == "measures":
            from stillhouse.evaluation.measures import parse_measures

            parse_measures(value)


def with_parameters(table: Mapping[str, RunParameter], settings: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Builds the settings of every use as a run with these parameters has them.

    Raises `InputError` for settings that do not go together.
    """
    changed: dict[str, dict[str, Any]] = {}
    for name, pairs in filled(table, settings).items():
        if name in values:
            for use, field in pairs:
                changed.setdefault(use, {})[field] = values[name]
    for use, fields in changed.items():
        try:
            dataclasses.replace(settings[use], **fields)
        except InputError as error:
            raise InputError(f"{', '.join(sorted(values))} do not go with the recipe: {use}: {error}") from None
