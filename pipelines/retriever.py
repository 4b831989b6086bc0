"""The whole run as a Kubeflow pipeline: one task a use of the graph, its settings those of a recipe.

A recipe is fixed when the pipeline is compiled and every setting is visible on its task. The few that a person who
starts a run from the user interface wants to change are parameters of the pipeline.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from pipelines.tasks import make_task
from stillhouse.config import field_types
from stillhouse.graph import USES, Use, find_uses
from stillhouse.surfaces.recipes import Recipe, configs

NAME = "stillhouse-retriever"

PIPELINE_PARAMETERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "source": (("ingest", "source"),),
    "model": (("fetch_model", "model"),),
    "objective": (("pretraining", "objective"),),
    "seed": tuple((use.name, "seed") for use in USES if "seed" in field_types(use.step.config)),
    "learning_rate": tuple((name, "learning_rate") for name in ("retriever_1", "retriever_2", "distilled")),
}
"""Parameters of the pipeline and the (use, setting) pairs that each one fills, the first of which gives its default."""


def build_pipeline(recipe: Recipe, where: str = "recipe") -> BaseComponent:
    """The pipeline of a recipe. Raises `InputError` for a section or setting that is unknown or ill-typed.

    A pair of `PIPELINE_PARAMETERS` whose value differs in the recipe from the parameter's default keeps its own.
    """
    settings = configs(recipe, where)
    pairs = pipeline_pairs(settings)

    def retriever(*arguments: Any) -> None:
        given = dict(zip(pairs, arguments))
        chosen = {pair: given[name] for name, members in pairs.items() for pair in members}
        tasks: dict[str, PipelineTask] = {}
        for use in USES:
            tasks[use.name] = make_task(use, _settings(use, settings[use.name], chosen), tasks)

    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation=field_types(find_uses()[members[0][0]].step.config)[members[0][1]],
            default=_value(settings, members[0]),
        )
        for name, members in pairs.items()
    ]
    # kfp reads a pipeline's interface from its signature, which here follows the table.
    retriever.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    description = "From a corpus to a distilled dense retriever, its index and its evaluation."
    return dsl.pipeline(name=NAME, description=description)(retriever)


def pipeline_pairs(settings: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """The (use, setting) pairs that each parameter of the pipeline fills under a recipe's settings."""
    return {
        name: [pair for pair in members if _value(settings, pair) == _value(settings, members[0])]
        for name, members in PIPELINE_PARAMETERS.items()
    }


def _value(settings: Mapping[str, Any], pair: tuple[str, str]) -> Any:
    use, field = pair
    return getattr(settings[use], field)


def _settings(use: Use, config: Any, chosen: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    return {field: chosen.get((use.name, field), getattr(config, field)) for field in field_types(use.step.config)}
