"""The refresh as a Kubeflow pipeline: the corpus is read anew, and its change says which of four rungs is climbed.

Every rung's steps are tasks; a rung that is not climbed is skipped, and where nothing changed all are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from pipelines.control import gate
from pipelines.interface import config_inputs, make_pipeline
from pipelines.placement_table import PlacementTable
from pipelines.refresh_tasks import check_refresh, plan_refresh, release_refresh
from pipelines.tasks import GATE, Pods, make_task
from stillhouse.config import field_types
from stillhouse.graph import Use, graph_of
from stillhouse.refresh.graph import CHAMPION, Ladder, before
from stillhouse.refresh.parameters import SOURCE, Parameters, write_recipe
from stillhouse.refresh.plan import Rung
from stillhouse.surfaces.recipes import Recipe, configs
from stillhouse.surfaces.refresh_component import MADE

NAME = "refresh"
DESCRIPTION = "Brings the released retriever up to date with its corpus, by as little work as its change asks for."
CLIMBED = tuple(rung for rung in Rung if rung != Rung.NOTHING)


def build_refresh(
    recipe: Recipe, where: str = "recipe", table: PlacementTable | None = None, shards: int = 0
) -> BaseComponent:
    """The pipeline of a recipe, whose settings hold for every step of every rung.

    `table` says where its tasks run; without one they run on this machine. Raises `InputError` for a section or
    setting that is unknown or ill-typed.
    """
    settings = configs(recipe, where)
    whole = graph_of(recipe, where)
    ladder = Ladder.of(whole)
    text = write_recipe(recipe)

    def body(given: dict[str, Any], pods: Pods) -> None:
        pods = replace(pods, recipe=recipe)
        asked = {name: given[name] for name in field_types(Parameters)}
        # Once more, as it asks repositories, which may not answer just then.
        check = pods.place_first(check_refresh(**asked), "check-refresh", "check_parameters", retries=1)
        tasks: dict[str, PipelineTask] = {}
        for use in before(whole):
            own = {name: given[name] for name in SOURCE} if use.section == "ingest" else {}
            task = make_task(use, _settings(use, settings) | own, tasks, pods)
            tasks[use.name] = task if use.inputs else task.after(check)
        # Before the plan: a corpus that does not pass is compared with nothing and climbs no rung.
        verdict = tasks["validate"].outputs["validation"]
        tasks[GATE] = pods.place(gate(validation=verdict), GATE, GATE, retries=1)
        planned = plan_refresh(corpus=tasks["ingest"].outputs["corpus"], recipe=text, **asked)
        tasks[CHAMPION] = pods.place(planned.after(tasks[GATE]), "plan-refresh", "plan")
        for rung in CLIMBED:
            # kfp's local runner finds a condition's value by no other name than Output, that of a returned value.
            with dsl.If(planned.outputs["Output"] == str(rung), name=str(rung).replace("_", "-")):
                made = _climb(ladder.uses_of(rung), rung, settings, dict(tasks), pods)
                done = release_refresh(planned=planned.outputs["refreshed"], recipe=text, **asked, **made)
                pods.place(done, "release-refresh", "promote")

    inputs = config_inputs(Parameters, {name: getattr(settings["ingest"], name) for name in SOURCE})
    return make_pipeline(NAME, DESCRIPTION, inputs, table, body, shards)


def _climb(
    uses: Iterable[Use], rung: Rung, settings: Mapping[str, Any], tasks: dict[str, PipelineTask], pods: Pods
) -> dict[str, Any]:
    """The tasks of a rung; what they and those before made, by the names of the inputs of `release_refresh`."""
    for use in uses:
        # What the champion's retriever encodes is what is new: little. A challenger's vectors are all new.
        known = rung == Rung.INDEX or use.name.startswith(CHAMPION)
        tasks[use.name] = make_task(use, _settings(use, settings), tasks, pods.unsharded if known else pods)
    found = {}
    for port, place in MADE.items():
        use_name, output = place.split("/")
        if use_name in tasks:
            found[port] = tasks[use_name].outputs[output]
    return found


def _settings(use: Use, settings: Mapping[str, Any]) -> dict[str, Any]:
    config = settings[use.section]
    return {field: getattr(config, field) for field in field_types(use.step.config)}
