"""The refresh as a Kubeflow pipeline: it reads the corpus again, and the change decides which of four rungs to climb.

All tasks of the other rungs are skipped, and if nothing changed, those of every rung.
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
DESCRIPTION = "Brings the released retriever up to date with its corpus, with as little work as the change needs."
CLIMBED = tuple(rung for rung in Rung if rung not in (Rung.NOTHING, Rung.QUERY_ONLY))
"""Rungs that have tasks. `query_only` is a trial, which only the command runs."""


def build_refresh(
    recipe: Recipe, where: str = "recipe", table: PlacementTable | None = None, shards: int = 0
) -> BaseComponent:
    """The pipeline of a recipe, whose settings apply to every step of every rung.

    `table` places its tasks; without one they run on this machine. Raises `InputError` for an unknown or ill-typed
    section or setting.
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
        # Retried once, since it asks repositories, which may not answer at the moment.
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
            # kfp's local runner only finds a condition's value under the name Output, that of a returned value.
            with dsl.If(planned.outputs["Output"] == str(rung), name=str(rung).replace("_", "-")):
                of_rung = dict(made)
                for task in tasks_of(uses, tasks_of_rung(rung), wanted=MADE.values()):
                    # The champion's retriever only encodes new passages, which are few; a challenger encodes all.
                    known = rung == Rung.INDEX or task.name == CHAMPION
                    add_task(task, of_uses, {}, of_rung, pods.unsharded if known else pods)
                handed = {port: of_rung[source] for port, source in MADE.items() if source in of_rung}
                done = release_refresh(planned=planned.outputs["refreshed"], **handed)
                pods.place(done, "release-refresh", "promote")

    inputs = config_inputs(Parameters, {name: getattr(settings["ingest"], name) or "" for name in SOURCE})
    return make_pipeline(NAME, DESCRIPTION, inputs, table, body, shards)
