"""A comparison as a Kubeflow pipeline: what all variants share, then a loop over variants and seeds, then one page.

The settings that differ from item to item are parameters of the loop's items; all others are fixed on their tasks, as
in the pipeline of a whole run. There is one loop for the variants with a pre-training and one for those without, since
their tasks differ; both hand their evaluations to the last task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from pipelines.check import check_compare_objectives
from pipelines.control import list_items
from pipelines.gather import gather_comparison
from pipelines.interface import make_pipeline
from pipelines.ir import compile_small
from pipelines.placement_table import DEFAULT_TABLE, PlacementTable, find_table
from pipelines.tasks import Pods, make_task
from pipelines.train import pipeline_inputs
from stillhouse.config import field_types
from stillhouse.errors import InputError
from stillhouse.graph import Use
from stillhouse.own_files import own_file
from stillhouse.surfaces.compare_graph import EVALUATION, PRETRAINING, refuse_other_graphs
from stillhouse.surfaces.compare_plan import SHARED, Job, Plan
from stillhouse.surfaces.run_parameters import COMMON, Pair, filled

NAME = "compare-objectives"
CHANNEL_TYPES = {bool: "Boolean", int: "Integer", float: "Float", str: "String"}
"""kfp's names of the types of settings."""
ITEM_LIMIT = 200
"""A loop's items, all settings included, stand in the pipeline; Kubernetes refuses workflows that grow too large."""

Item = dict[str, bool | int | float | str]


def compile_comparison(plan: Plan, output: Path, table: PlacementTable | None = None) -> None:
    """Writes the pipeline of a plan as IR YAML, the form that Kubeflow takes; by default with pods without GPUs."""
    compiled = compile_small(build_comparison(plan, table or find_table(DEFAULT_TABLE)))
    with own_file(output) as file:
        file.write_text(compiled.as_ir(), encoding="utf-8")


def build_comparison(plan: Plan, table: PlacementTable | None = None) -> BaseComponent:
    """The pipeline of a plan. Raises `InputError` for more runs than one loop can hold, and for other graphs."""
    if len(plan.jobs) > ITEM_LIMIT:
        raise InputError(f"{len(plan.jobs)} runs are more than one pipeline holds ({ITEM_LIMIT}); use fewer seeds")
    refuse_other_graphs(plan.sweep, "a Kubeflow comparison", stages=True)
    groups = {
        pretrained: [job for job in plan.jobs if (PRETRAINING in job.places) == pretrained]
        for pretrained in (True, False)
    }
    uses_before = _shared_uses(plan)
    before = {use.name: _shared_config(plan, use) for use in uses_before}
    pairs = filled(COMMON, before)

    def body(given: dict[str, Any], pods: Pods) -> None:
        pods = replace(pods, recipe=plan.recipe)
        chosen = {pair: given[name] for name, members in pairs.items() for pair in members}
        asked = check_compare_objectives(**{name: given[name] for name in COMMON})
        check = pods.place_first(asked, "check", "check_parameters", retries=0)
        shared: dict[str, PipelineTask] = {}
        for use in uses_before:
            task = make_task(use, _with_chosen(use, before[use.name], chosen), shared, pods)
            shared[use.name] = task if use.inputs else task.after(check)
        handed: dict[str, Any] = {}
        for pretrained, jobs in groups.items():
            if not jobs:
                continue
            items, uses, group = loop_items(jobs), _own_uses(jobs), "variants" if pretrained else "unpretrained"
            # Inside an exit handler kfp 2.17 hands the parts of an item that is written into the loop to groups that
            # do not have them; those of a task's output reach the loop's tasks and nothing else.
            listed = pods.place(list_items(items=json.dumps(items)).after(check), "list-items", f"list_{group}")
            with dsl.ParallelFor(listed.output, name=group) as item:
                tasks = dict(shared)
                for use in uses:
                    tasks[use.name] = make_task(use, _settings(use, jobs[0], items[0], item), tasks, pods.unsharded)
            prefix = "" if pretrained else "unpretrained_"
            handed[f"{prefix}evaluations"] = dsl.Collected(tasks[EVALUATION].outputs["evaluation"])
            if pretrained:
                handed["curves"] = dsl.Collected(tasks[PRETRAINING].outputs["curves"])
        content = json.dumps({"name": plan.sweep.name} | plan.sweep.plain(), ensure_ascii=False)
        page = gather_comparison(sweep=content, reference=shared[EVALUATION].outputs["evaluation"], **handed)
        pods.place(page, "gather-comparison", "comparison")

    description = f"Pre-trainings side by side: {plan.sweep.title or plan.sweep.name}."
    return make_pipeline(NAME, description, pipeline_inputs(COMMON, before), table, body)


def _with_chosen(use: Use, config: Any, chosen: Mapping[Pair, Any]) -> dict[str, Any]:
    return {field: chosen.get((use.name, field), getattr(config, field)) for field in field_types(use.step.config)}


def loop_items(jobs: Sequence[Job]) -> list[Item]:
    """One item a job: every setting that is not the same for all jobs, as `use__field`, and the run's name."""
    items: list[Item] = [{"run": job.name} for job in jobs]
    for use in _own_uses(jobs):
        for field, kind in field_types(use.step.config).items():
            values = [getattr(job.configs[use.name], field) for job in jobs]
            if len(set(values)) > 1 or (use.name == EVALUATION and field == "title"):
                for item, value in zip(items, values):
                    # An item's whole number cannot stand where a setting is a number with a fraction.
                    item[f"{use.name}__{field}"] = kind(value)
    return items


def _own_uses(jobs: Sequence[Job]) -> list[Use]:
    """The uses of a loop's body: those that differ between jobs, by variant or by seed, and what reads them."""
    own = {name for job in jobs for name, place in job.places.items() if place != Path(SHARED)}
    return [use for use in jobs[0].uses if use.name in own]


def _shared_uses(plan: Plan) -> list[Use]:
    """The uses before the loops: the reference's, and those that every job of a group takes as they are."""
    found = {use.name: use for use in plan.reference.uses}
    for pretrained in (True, False):
        jobs = [job for job in plan.jobs if (PRETRAINING in job.places) == pretrained]
        if jobs:
            own = {use.name for use in _own_uses(jobs)}
            found |= {use.name: use for use in jobs[0].uses if use.name not in own and use.name not in found}
    order = [use.name for job in plan.jobs[:1] for use in job.uses]
    known = sorted(found.values(), key=lambda use: order.index(use.name) if use.name in order else len(order))
    # The reference's evaluation comes last: it has the name of the jobs' own.
    return [use for use in known if use.name != EVALUATION] + [found[EVALUATION]]


def _shared_config(plan: Plan, use: Use) -> Any:
    """A shared use's settings: those of any job that takes it as shared, else the reference's."""
    for job in plan.jobs:
        if job.places.get(use.name) == Path(SHARED):
            return job.configs[use.name]
    return plan.reference.configs[use.name]


def _settings(use: Use, job: Job, first: Item, item: Any) -> dict[str, Any]:
    values = {}
    for field, kind in field_types(use.step.config).items():
        name = f"{use.name}__{field}"
        if name in first:
            value = getattr(item, name)
            # kfp takes every part of an item for text, whatever the items hold.
            value.channel_type = CHANNEL_TYPES[kind]
            values[field] = value
        else:
            values[field] = getattr(job.configs[use.name], field)
    return values
