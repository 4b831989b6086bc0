"""The refresh as a Kubeflow pipeline: the corpus is read anew, and its change says which of four rungs is climbed.

A rung that is not climbed is skipped with all its tasks, and where nothing changed all rungs are.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from stillhouse.config import field_types
from stillhouse.kubernetes.pods.refresh import MADE, TAKEN
from stillhouse.pipelines.interface import config_inputs, make_pipeline
from stillhouse.pipelines.placement_table import PlacementTable
from stillhouse.pipelines.refresh_tasks import check_refresh, plan_refresh, release_refresh
from stillhouse.pipelines.tasks import Pods, add_task
from stillhouse.releases.refresh.graph import CHAMPION, Ladder, before, tasks_of_rung
from stillhouse.releases.refresh.parameters import SOURCE, Parameters, write_recipe
from stillhouse.releases.refresh.plan import Rung
from stillhouse.workflow.graph import graph_of
from stillhouse.workflow.recipes import Recipe, configs
from stillhouse.workflow.tasks import VERDICT, tasks_of

NAME = "refresh"
DESCRIPTION = "Brings the released retriever up to date with its corpus, by as little work as its change asks for."
CLIMBED = tuple(rung for rung in Rung if rung not in (Rung.NOTHING, Rung.QUERY_ONLY))
"""Rungs that have tasks. `query_only` is a trial, which the command alone makes."""


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

    rungs = {rung: tuple(ladder.uses_of(rung)) for rung in CLIMBED}
    read_later = {source for uses in rungs.values() for use in uses for source in use.inputs.values()}
    first = tasks_of(before(whole), wanted=read_later | set(MADE.values()))

    def body(given: dict[str, Any], pods: Pods) -> None:
        pods = replace(pods, recipe=recipe)
        asked = {name: given[name] for name in field_types(Parameters)}
        # Once more, as it asks repositories, which may not answer just then.
        check = pods.place_first(check_refresh(**asked), "check-refresh", "check_parameters", retries=1)
        made: dict[str, Any] = {}
        of_uses = {use.name: settings[use.section] for use in (*before(whole), *chain(*rungs.values()))}
        chosen = {(use.name, name): name for use in before(whole) if use.section == "ingest" for name in SOURCE}
        for task in first:
            there = add_task(task, of_uses, chosen, made, pods)
            if not task.inputs:
                there.after(check)
        planned = plan_refresh(corpus=made["ingest/corpus"], validation=made[VERDICT], recipe=text, **asked)
        pods.place(planned, "plan-refresh", "plan")
        made |= {f"{CHAMPION}/{name}": planned.outputs[name] for name in TAKEN}
        for rung, uses in rungs.items():
            # kfp's local runner finds a condition's value by no other name than Output, that of a returned value.
            with dsl.If(planned.outputs["Output"] == str(rung), name=str(rung).replace("_", "-")):
                of_rung = dict(made)
                for task in tasks_of(uses, tasks_of_rung(rung), wanted=MADE.values()):
                    # What the champion's retriever encodes is what is new: little. A challenger's vectors are all new.
                    known = rung == Rung.INDEX or task.name == CHAMPION
                    add_task(task, of_uses, {}, of_rung, pods.unsharded if known else pods)
                handed = {port: of_rung[source] for port, source in MADE.items() if source in of_rung}
                done = release_refresh(planned=planned.outputs["refreshed"], **handed)
                pods.place(done, "release-refresh", "promote")

    inputs = config_inputs(Parameters, {name: getattr(settings["ingest"], name) or "" for name in SOURCE})
    return make_pipeline(NAME, DESCRIPTION, inputs, table, body, shards)
