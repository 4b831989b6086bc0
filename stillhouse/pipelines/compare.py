"""A comparison as a Kubeflow pipeline: the tasks that all variants share, then one task for all variants and seeds.

Items hold the settings that differ between runs; all others are stored with their uses. Runs with the same graph, such
as those without pre-training, form a group, since the uses of another graph differ. A loop would create too many pods
for Argo, so one task does its items one after the other, or its nodes do them in parallel.
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

from stillhouse.config import field_types
from stillhouse.errors import InputError
from stillhouse.experiments.comparison.graph import CURVES, EVALUATION
from stillhouse.experiments.comparison.plan import SHARED, Job, Plan
from stillhouse.kubernetes.pods.compare import LOSSES
from stillhouse.kubernetes.pods.run_parameters import COMMON, filled
from stillhouse.kubernetes.pods.task import as_json, describe_use, port_name
from stillhouse.own_files import own_file
from stillhouse.pipelines.control import check_compare_objectives
from stillhouse.pipelines.interface import make_pipeline
from stillhouse.pipelines.ir import compile_small
from stillhouse.pipelines.placement_table import DEFAULT_TABLE, PlacementTable, find_table
from stillhouse.pipelines.task_component import variants_component
from stillhouse.pipelines.tasks import Pods, add_task
from stillhouse.pipelines.train import pipeline_inputs
from stillhouse.setting_kinds import plain
from stillhouse.workflow.graph import Use
from stillhouse.workflow.tasks import Task, tasks_of
from stillhouse.workflow.uses import used

NAME = "compare-objectives"
LABEL = "comparison"
REFERENCE = f"{EVALUATION}/evaluation"
ITEM_LIMIT = 200
"""The pipeline contains all items with their settings, and Kubernetes refuses workflows that are too large."""

Item = dict[str, bool | int | float | str]


def compile_comparison(plan: Plan, output: Path, table: PlacementTable | None = None) -> None:
    """Writes the pipeline of a plan as IR YAML, the format that Kubeflow reads; by default for pods without GPUs."""
    compiled = compile_small(build_comparison(plan, table or find_table(DEFAULT_TABLE)))
    with own_file(output) as file:
        file.write_text(compiled.as_ir(), encoding="utf-8")


def build_comparison(plan: Plan, table: PlacementTable | None = None, shards: int = 0) -> BaseComponent:
    """The pipeline of a plan. Raises `InputError` for more runs than one task can hold.

    `shards` is the number of nodes that share the runs; it overrides the table.
    """
    if len(plan.jobs) > ITEM_LIMIT:
        raise InputError(f"{len(plan.jobs)} runs exceed the limit of a pipeline ({ITEM_LIMIT}); use fewer seeds")
    groups = _groups(plan.jobs)
    own = {group: _own_uses(jobs) for group, jobs in groups.items()}
    described = {
        group: {
            use.name: describe_use(use, plan.recipe.get(use.section, {}), jobs[0].configs[use.name])
            for use in own[group]
        }
        for group, jobs in groups.items()
    }
    items: list[Mapping[str, Any]] = []
    read: dict[str, None] = {}
    for group, jobs in groups.items():
        losses = _losses(plan, jobs[0])
        of_group = {"group": group} | ({LOSSES: losses} if losses else {})
        items += [of_group | item for item in loop_items(jobs)]
        # Another group may have a use of its own where this one reads the shared one.
        names = {use.name for use in own[group]}
        sources = [*(source for use in own[group] for source in use.inputs.values()), *losses.values()]
        read |= dict.fromkeys(source for source in sources if used(source) not in names)
    content = json.dumps({"name": plan.sweep.name} | plan.sweep.plain(), ensure_ascii=False)
    variants = Task(LABEL, tuple(use for uses in own.values() for use in uses), tuple(read), ())
    uses_before = _shared_uses(plan)
    before = {use.name: _shared_config(plan, use) for use in uses_before}
    pairs = filled(COMMON, before)
    shared = tasks_of(uses_before, wanted={*read, REFERENCE})

    def check(given: dict[str, Any]) -> PipelineTask:
        return check_compare_objectives(wanted="", **{name: given[name] for name in COMMON})

    def body(given: dict[str, Any], pods: Pods) -> None:
        pods = replace(pods, recipe=plan.recipe)
        chosen = {pair: name for name, members in pairs.items() for pair in members}
        made: dict[str, Any] = {}
        for task in shared:
            there = add_task(task, before, chosen, made, pods)
            if not task.inputs:
                there.after(pods.look)
        there = variants_component(variants)(
            run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
            sweep=content,
            uses=as_json(described),
            items=as_json(items),
            reference=made[REFERENCE],
            **{port_name(source): made[source] for source in variants.inputs},
        )
        pods.place_variants(there, variants.uses, LABEL, LABEL)

    description = f"Pre-trainings side by side: {plan.sweep.title or plan.sweep.name}."
    return make_pipeline(NAME, description, pipeline_inputs(COMMON, before), table, body, shards, check)


def loop_items(jobs: Sequence[Job]) -> list[Item]:
    """One item per job: every setting that differs between jobs, as `use__field`, and the run's name."""
    items: list[Item] = [{"run": job.name} for job in jobs]
    for use in _own_uses(jobs):
        for field, hint in field_types(use.step.config).items():
            values = [plain(getattr(job.configs[use.name], field)) for job in jobs]
            if any(value != values[0] for value in values) or (use.name == EVALUATION and field == "title"):
                for item, value in zip(items, values):
                    # A float setting does not accept an integer in an item.
                    item[f"{use.name}__{field}"] = float(value) if hint is float else value
    return items


def _groups(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    """The jobs by their graph, each group under the name of its first variant."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        name = next((name for name, members in groups.items() if members[0].uses == job.uses), job.variant)
        groups.setdefault(name, []).append(job)
    return groups


def _losses(plan: Plan, job: Job) -> dict[str, str]:
    """The curves with the sweep's loss figures, each as `use/output`, of the trainings that a job has."""
    return {name: f"{use}/{CURVES}" for name, use in plan.sweep.losses.items() if use in job.places}


def _own_uses(jobs: Sequence[Job]) -> list[Use]:
    """The uses that differ between jobs, by variant or by seed, and the uses that read them."""
    own = {name for job in jobs for name, place in job.places.items() if place != Path(SHARED)}
    return [use for use in jobs[0].uses if use.name in own]


def _shared_uses(plan: Plan) -> list[Use]:
    """The shared uses: the reference's, and those that every job of a group uses unchanged."""
    found = {use.name: use for use in plan.reference.uses}
    for jobs in _groups(plan.jobs).values():
        own = {use.name for use in _own_uses(jobs)}
        found |= {use.name: use for use in jobs[0].uses if use.name not in own and use.name not in found}
    order = [use.name for job in plan.jobs[:1] for use in job.uses]
    known = sorted(found.values(), key=lambda use: order.index(use.name) if use.name in order else len(order))
    # The reference's evaluation comes last: it has the same name as the jobs' evaluations.
    return [use for use in known if use.name != EVALUATION] + [found[EVALUATION]]


def _shared_config(plan: Plan, use: Use) -> Any:
    """The settings of a shared use: from any job that shares it, else from the reference."""
    for job in plan.jobs:
        if job.places.get(use.name) == Path(SHARED):
            return job.configs[use.name]
    return plan.reference.configs[use.name]
