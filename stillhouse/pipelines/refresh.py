"""The refresh as a Kubeflow pipeline: it reads the corpus again, and the change decides which rung to climb.

All tasks of the other rungs are skipped, and if nothing changed, those of every rung. The rung `query_only` is one
task: it trains the query tower, and goes on with the uses of `fine_tune` if the dev queries show no gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.config import field_types
from stillhouse.kubernetes.pods.refresh import MADE, TAKEN
from stillhouse.kubernetes.pods.task import RUN, port_name
from stillhouse.pipelines.interface import config_inputs, make_pipeline
from stillhouse.pipelines.placement_table import PlacementTable
from stillhouse.pipelines.refresh_tasks import check_refresh, plan_refresh, release_refresh
from stillhouse.pipelines.task_component import trial_component
from stillhouse.pipelines.tasks import Pods, add_task
from stillhouse.releases.refresh.graph import CHAMPION, Ladder, before, tasks_of_rung, with_words
from stillhouse.releases.refresh.parameters import SOURCE, Parameters, carried_recipe
from stillhouse.releases.refresh.plan import Rung
from stillhouse.workflow.graph import graph_of
from stillhouse.workflow.recipes import Recipe, configs
from stillhouse.workflow.tasks import VERDICT, Task, tasks_of
from stillhouse.workflow.uses import Use, used

NAME = "refresh"
DESCRIPTION = "Brings the released retriever up to date with its corpus, with as little work as the change needs."
CLIMBED = tuple(rung for rung in Rung if rung != Rung.NOTHING)
"""Rungs that have tasks."""
TRIAL = "query_trial"
"""The task of the rung `query_only`."""


def build_refresh(
    recipe: Recipe, where: str = "recipe", table: PlacementTable | None = None, shards: int = 0
) -> BaseComponent:
    """The pipeline of a recipe, whose settings apply to every step of every rung.

    `table` places its tasks; without one they run on this machine. Raises `InputError` for an unknown or ill-typed
    section or setting.
    """
    settings = with_words(configs(recipe, where))
    whole = graph_of(recipe, where)
    ladder = Ladder.of(whole)
    text = carried_recipe(recipe)

    rungs = {rung: ladder.climbed_from(rung) for rung in CLIMBED}
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
        planned = plan_refresh(
            corpus=made["ingest/corpus"], validation=made[VERDICT], asked=check.outputs["asked"], recipe=text
        )
        pods.place(planned, "plan-refresh", "plan")
        made |= {f"{CHAMPION}/{name}": planned.outputs[name] for name in TAKEN}
        for rung, uses in rungs.items():
            # kfp's local runner only finds a condition's value under the name Output, that of a returned value.
            with dsl.If(planned.outputs["Output"] == str(rung), name=str(rung).replace("_", "-")):
                of_rung = dict(made)
                if rung == Rung.QUERY_ONLY:
                    decided = _add_trial(uses, planned, of_rung, pods)
                else:
                    decided = planned
                    for task in tasks_of(uses, tasks_of_rung(rung), wanted=MADE.values()):
                        # The champion's retriever only encodes new passages, which are few; a challenger encodes all.
                        known = rung == Rung.INDEX or task.name == CHAMPION
                        add_task(task, of_uses, {}, of_rung, pods.unsharded if known else pods)
                handed = {port: of_rung[source] for port, source in MADE.items() if source in of_rung}
                done = release_refresh(planned=decided.outputs["refreshed"], **handed)
                pods.place(done, "release-refresh", "promote")

    inputs = config_inputs(Parameters, {name: getattr(settings["ingest"], name) or "" for name in SOURCE})
    return make_pipeline(NAME, DESCRIPTION, inputs, table, body, shards)


def trial_task(uses: Sequence[Use]) -> Task:
    """The task of the rung `query_only`, which runs some of `uses`: those of its own rung and of `fine_tune`."""
    own = {use.name for use in uses}
    read = (source for use in uses for source in use.inputs.values() if used(source) not in own)
    made = (f"{use.name}/{port.name}" for use in uses for port in use.step.outputs)
    wanted = set(MADE.values())
    outputs = dict.fromkeys(source for source in made if source in wanted)
    return Task(TRIAL, tuple(uses), tuple(dict.fromkeys(read)), tuple(outputs))


def _add_trial(uses: Sequence[Use], planned: PipelineTask, made: dict[str, Any], pods: Pods) -> PipelineTask:
    """Adds the trial to the pipeline; it reads earlier outputs in `made` and adds its own."""
    task = trial_task(uses)
    given = {port_name(source): made[source] for source in task.inputs}
    given |= {RUN: dsl.PIPELINE_JOB_ID_PLACEHOLDER, "planned": planned.outputs["refreshed"]}
    there = trial_component(task)(**given)
    made |= {source: there.outputs[port_name(source)] for source in task.outputs}
    return pods.place_task(there, task)
