"""Kubeflow tasks that run the steps of one stage: the building blocks of every pipeline in this project."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.kubeflow.pipelines.place import place
from stillhouse.kubeflow.pipelines.placement import Placement
from stillhouse.kubeflow.pipelines.placement_table import PlacementTable
from stillhouse.kubeflow.pipelines.several_nodes import ask_for_nodes, node_settings
from stillhouse.kubeflow.pipelines.shared_pod import bare, launcher_of
from stillhouse.kubeflow.pipelines.stage_component import stage_component
from stillhouse.kubeflow.pods.stage import FOLDER, NODES, PLAN, RECIPE, digest_argument
from stillhouse.kubeflow.trainjob.settings import NODES as VARIABLE
from stillhouse.kubeflow.trainjob.settings import OWN, NodeSettings, nodes_text
from stillhouse.pipeline.recipes import Recipe
from stillhouse.pipeline.steps.sharding import DIVIDED
from stillhouse.pipeline.uses import Stage, Use

SHORT_PAUSE_SECONDS = 10
"""Pause before the retry of a task that should report soon."""


@dataclass(frozen=True)
class Pods:
    """Where the tasks of one pipeline run. Without a table, they run on this machine in the local runner.

    `chosen` holds the pipeline's parameters, as kfp passes them to the pipeline's function. `shards` is the number of
    parts in which the task's pod and nodes encode and count a corpus. `pipeline` is its name.
    """

    table: PlacementTable | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    shards: int = 1
    pipeline: str = ""
    first: PipelineTask | None = None
    """The task that writes which nodes the others start; without one, each gets its own in its environment."""
    nodes: list[tuple[str, NodeSettings]] = field(default_factory=list)
    """The nodes of the tasks so far, each with its step."""

    def with_nodes_of(self, first: PipelineTask) -> Pods:
        """The pods of the tasks after `first`, which writes which nodes they start."""
        return replace(self, first=first)

    def place(self, task: PipelineTask, step: str, label: str, *, retries: int | None = None) -> PipelineTask:
        """Names a task `label` and gives it the pod of `step`, the name of a step or of another component.

        `retries` limits the retries, with a short pause, of a task whose failure is usually its result and would only
        repeat itself, so that the user sees it soon.

        Kubeflow's own cache is off: it identifies an input by its name, so it would not notice a changed corpus. A
        stage has the digests of what it reads among its arguments, so it may be on there (`add_stages`).
        """
        task.set_display_name(label).set_caching_options(False)
        if not self.table:
            return task
        return self._put(task, self.table.of(step), step, label, retries)

    def place_bare(self, task: PipelineTask, step: str, label: str, *, retries: int | None = None) -> PipelineTask:
        """The same for a task that must start even if something is missing: without volumes, secrets and queue."""
        task.set_display_name(label).set_caching_options(False)
        if not self.table:
            return task
        return self._put(task, bare(self.table.of(step)), step, label, retries)

    def _put(
        self, task: PipelineTask, placement: Placement, step: str, label: str, retries: int | None
    ) -> PipelineTask:
        if retries is not None:
            placement = _retried_soon(placement, retries)
        return place(task, placement, step, self.chosen, self.pipeline, label)

    def place_divided(self, made: PipelineTask, step: str, label: str, parts: str) -> PipelineTask:
        """Gives a task the pod of `step`, and one such node per shard for the work that it divides into `parts`."""
        if not self.table:
            return self.place(made, step, label)
        return self._divided(made, self.table.of(step), label, parts)

    def place_variants(self, made: PipelineTask, uses: Sequence[Use], label: str, parts: str) -> PipelineTask:
        """The same for a task that runs the same uses several times with different settings.

        If a training needs several nodes, the task's pod starts them and does the rest by itself.
        """
        if not self.table:
            return self.place(made, label, label)
        names = list(dict.fromkeys(use.step_name for use in uses))
        several = self._several(names, 1)
        placement = self.table.of_task(label, names, several)
        return self._divided(made, placement, label, parts, several)

    def _divided(
        self,
        made: PipelineTask,
        placement: Placement,
        label: str,
        parts: str,
        several: Mapping[str, Placement] | None = None,
    ) -> PipelineTask:
        assert self.table
        several = dict(several or {})
        if self.shards > 1 and not several:
            several[parts] = replace(placement, nodes=self.shards)
            placement = launcher_of(placement)
        return self._put_with_nodes(made, placement, label, several)

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

    def _put_with_nodes(
        self, made: PipelineTask, placement: Placement, label: str, several: Mapping[str, Placement]
    ) -> PipelineTask:
        made.set_display_name(label).set_caching_options(False)
        self._put(made, placement, label, label, None)
        nodes = [(step, node_settings(of, step, label)) for step, of in several.items()]
        if nodes:
            ask_for_nodes(made, (settings for _, settings in nodes), self.chosen)
            if self.first:
                self.nodes.extend(nodes)
                self.first.inputs[NODES] = nodes_text(self.nodes)
            else:
                made.set_env_variable(VARIABLE, nodes_text(nodes))
        return made

    def place_task(self, made: PipelineTask, task: Stage) -> PipelineTask:
        """The same for a task that runs a stage: it also gets its nodes."""
        if not self.table:
            return self.place(made, task.name, task.name)
        names = [use.step_name for use in task.uses]
        several = self._several(names, self.shards)
        placement = self.table.of_task(task.name, names, several)
        return self._put_with_nodes(made, placement, task.name, several)


def _retried_soon(placement: Placement, retries: int) -> Placement:
    return replace(
        placement,
        retries=min(retries, placement.retries),
        retry_after_seconds=min(SHORT_PAUSE_SECONDS, placement.retry_after_seconds),
    )


def as_json(recipe: Recipe) -> str:
    """A recipe as compact JSON; sections without settings are left out."""
    content = {name: section for name, section in recipe.items() if section}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def plan_output(stage: str) -> str:
    """The output of a run's first task with the digest of what a stage computes."""
    return f"plan_{stage}"


def add_stages(
    stages: Sequence[Stage], first: PipelineTask, pods: Pods, module: str, call: str = "run_stage"
) -> dict[str, PipelineTask]:
    """Add a task for each stage after the `first` task, which writes the recipe and a digest of each stage's plan.

    Kubeflow caches a task by these digests and those of the folders it reads.
    """
    made: dict[str, PipelineTask] = {}
    for stage in stages:
        plan, digests = (
            first.outputs[plan_output(stage.name)],
            {name: of.outputs["Output"] for name, of in made.items()},
        )
        task = add_stage(stage, stages, made, first, (module, call), plan, digests)
        made[stage.name] = pods.place_task(task, stage).set_caching_options(True)
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
        **{digest_argument(other.name): (digests or {}).get(other.name, "") for other in reads},
        **(known or {}),
        **{other.name: made[other.name].outputs[FOLDER] for other in reads},
    )
