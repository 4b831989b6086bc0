"""The parameters that a person sets when a Kubeflow run is started: what each fills, and what it may be.

A recipe is fixed when a pipeline is compiled. Its few settings that a person wants to change from run to run are listed
here; their types, choices and ranges are those of the steps' own settings. They are checked twice by the same code:
by `stillhouse pipeline submit` before anything is sent, and by the run's first task, for runs that the user interface
or a schedule starts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stillhouse.config import check_value, field_types, nearest
from stillhouse.errors import InputError
from stillhouse.graph import USES, find_uses

Pair = tuple[str, str]
"""A use of the graph and one of its settings."""


@dataclass(frozen=True)
class RunParameter:
    """The pairs that a parameter fills, the first of which gives its default, and what the run form says of it."""

    help: str
    fills: tuple[Pair, ...]

    @property
    def kind(self) -> type:
        use, field = self.fills[0]
        return field_types(find_uses()[use].step.config)[field]

    @property
    def rules(self) -> Mapping[str, Any]:
        """Choices and range, as `config.check_value` takes them."""
        use, field = self.fills[0]
        config = find_uses()[use].step.config
        return next(entry.metadata for entry in dataclasses.fields(config) if entry.name == field)


def _of(uses: tuple[str, ...], field: str) -> tuple[Pair, ...]:
    return tuple((use, field) for use in uses)


RETRIEVERS = ("retriever_1", "retriever_1_unpretrained", "retriever_2", "distilled")
COMMON: Mapping[str, RunParameter] = {
    "source": RunParameter("the corpus: a folder or file on the work volume, or `sample`", _of(("ingest",), "source")),
    "queries": RunParameter(
        "train queries: source = labelled ones, pairs = made of the corpus, auto = pairs where there are none",
        _of(("ingest",), "queries"),
    ),
    "test_queries": RunParameter(
        "a folder with labelled test queries in BEIR layout", _of(("ingest",), "test_queries")
    ),
    "model": RunParameter(
        "the starting model: a name on the hub, a folder on the work volume, or package:NAME",
        _of(("fetch_model",), "model"),
    ),
}
TRAIN: Mapping[str, RunParameter] = dict(COMMON) | {
    "objective": RunParameter("the pre-training objective, as simlm or cdmae", _of(("pretraining",), "objective")),
    "pretraining_steps": RunParameter("steps of pre-training; 0 = by epochs", _of(("pretraining",), "max_steps")),
    "pretraining_learning_rate": RunParameter(
        "peak learning rate of pre-training", _of(("pretraining",), "learning_rate")
    ),
    "learning_rate": RunParameter("peak learning rate of every retriever", _of(RETRIEVERS, "learning_rate")),
    "training_steps": RunParameter("steps of every retriever; 0 = by epochs", _of(RETRIEVERS, "max_steps")),
    "seed": RunParameter(
        "seed of every random choice",
        tuple((use.name, "seed") for use in USES if "seed" in field_types(use.step.config)),
    ),
    "measures": RunParameter("measures of the evaluation, spaces between", _of(("evaluate",), "measures")),
    "title": RunParameter("title of the report", _of(("evaluate",), "title")),
}
TABLES: Mapping[str, Mapping[str, RunParameter]] = {"train": TRAIN, "compare-objectives": COMMON}
"""By the name of the pipeline."""


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
