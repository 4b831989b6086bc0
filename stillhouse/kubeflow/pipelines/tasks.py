"""Kubeflow tasks that run the steps of one stage: the building blocks of every pipeline in this project."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.kubeflow.pipelines.place import hand_down, place
from stillhouse.kubeflow.pipelines.placement_table import PlacementTable
from stillhouse.kubeflow.pipelines.shared_pod import bare, launcher_of, shared_pod
from stillhouse.kubeflow.pipelines.stage_component import stage_component
from stillhouse.kubeflow.placement import Placement
from stillhouse.kubeflow.pods.stage import DIGEST, FOLDER, NODES, PLAN, RECIPE
from stillhouse.kubeflow.pods.task import COUNT, TYPE
from stillhouse.kubeflow.trainjob.settings import OWN, nodes_text
from stillhouse.pipeline.graph_steps import Stage
from stillhouse.pipeline.recipes import Recipe
from stillhouse.pipeline.steps.spec import DIVIDED


@dataclass
class Pods:
    """Where the tasks of one pipeline run. Without a table, they run on this machine in the local runner.

    `chosen` holds the pipeline's parameters, as kfp passes them to the pipeline's function. `pipeline` is its name.
    """

    table: PlacementTable | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    pipeline: str = ""
    first: PipelineTask | None = None
    """The task that writes which nodes those after it start."""
    nodes: list[tuple[str, str, Placement]] = field(default_factory=list)
    """The placements of the nodes of the tasks so far, each with its task and step."""

    def place(self, task: PipelineTask, step: str, label: str, *, waits: bool = True) -> PipelineTask:
        """Names a task `label` and gives it the pod of `step`, the name of a step or of another component.

        One that `waits` for nothing must start even if something is missing: it has no volumes, secrets and queue.

        Kubeflow's own cache is off: it identifies an input by its name, so it would not notice a changed corpus. A
        stage has the digests of what it reads among its arguments, so it may be on there (`add_stages`).
        """
        task.set_display_name(label).set_caching_options(False)
        if self.table:
            placement = self.table.of(step) if waits else bare(self.table.of(step))
            place(task, placement, step, self.chosen, self.pipeline, label)
        return task

    def place_steps(
        self, task: PipelineTask, label: str, names: Sequence[str], shards: int | None = None, parts: str = ""
    ) -> PipelineTask:
        """Names a task `label`, and gives it a pod for these steps and their nodes.

        The steps divide a corpus into `shards`; None = the table's. A task that divides its own work into `parts` gets
        a node for each shard instead, unless a training needs several nodes: then the task's pod starts them and does
        the rest by itself.
        """
        task.set_display_name(label).set_caching_options(False)
        if not self.table:
            return task
        several = self._several(names, self.table.shards if shards is None else shards)
        # A step that runs on nodes requests a small pod that starts them.
        pods = [launcher_of(self.table.of(step)) if step in several else self.table.of(step) for step in names]
        placement = shared_pod(pods, f"placements {self.table.name}: task {label}")
        if parts and self.table.shards > 1 and not several:
            several[parts] = replace(placement, nodes=self.table.shards)
            placement = launcher_of(placement)
        place(task, placement, label, self.chosen, self.pipeline, label)
        if any(of.accelerator for of in several.values()):
            hand_down(task, (TYPE, COUNT), self.chosen)
        if several and self.first:
            self.nodes.extend((label, step, of) for step, of in several.items())
            self.first.inputs[NODES] = nodes_text(self.nodes)
        return task

    def _several(self, steps: Iterable[str], shards: int) -> dict[str, Placement]:
        """The placements of the nodes for a task of these steps: for whole steps, and for shards of divided ones.

        No pod holds accelerators while it waits. If a training has its own nodes, so does every step that needs
        accelerators, and the pod asks for none. Otherwise the pod does one of the shards itself.
        """
        assert self.table
        found = {step: self.table.of(step) for step in steps if self.table.of(step).nodes > 1}
        waits = bool(found)
        for step in steps:
            if step in found:
                continue
            placement = self.table.of(step)
            if waits and placement.accelerator:
                found[step] = replace(placement, nodes=shards if step in DIVIDED else 1)
            elif step in DIVIDED and shards > OWN:
                part = DIVIDED[step]
                found[part] = replace(self.table.of(part), nodes=shards - OWN)
        return found


def as_json(recipe: Recipe) -> str:
    """A recipe as compact JSON."""
    return json.dumps(recipe, ensure_ascii=False, separators=(",", ":"))


PLANNED = "plan_{}"
"""The output of a run's first task with the digest of what a stage computes."""


def add_stages(
    stages: Sequence[Stage], first: PipelineTask, pods: Pods, module: str, call: str = "run_stage"
) -> dict[str, PipelineTask]:
    """Add a task for each stage after the `first` task, which writes the recipe and a digest of each stage's plan.

    Kubeflow caches a task by these digests and those of the folders it reads.
    """
    made: dict[str, PipelineTask] = {}
    for stage in stages:
        digests = {name: of.outputs["Output"] for name, of in made.items()}
        task = add_stage(stage, stages, made, first, (module, call), first.outputs[PLANNED.format(stage.name)], digests)
        made[stage.name] = pods.place_steps(task, stage.name, [step.kind for step in stage.steps])
        made[stage.name].set_caching_options(True)
    return made


def add_stage(
    stage: Stage,
    stages: Iterable[Stage],
    made: Mapping[str, PipelineTask],
    first: PipelineTask,
    call: tuple[str, str],
    plan: Any = "",
    digests: Mapping[str, Any] | None = None,
    known: Mapping[str, Any] | None = None,
    more: Sequence[str] = (),
) -> PipelineTask:
    """The task of one stage, which reads the folders that it needs of those `made`; `known` are `more` arguments."""
    reads = stage.reads(other for other in stages if other.name in made)
    return stage_component(stage, reads, *call, *more)(
        **{RECIPE: first.outputs[RECIPE], PLAN: plan},
        **{DIGEST.format(other.name): (digests or {}).get(other.name, "") for other in reads},
        **(known or {}),
        **{other.name: made[other.name].outputs[FOLDER] for other in reads},
    )
