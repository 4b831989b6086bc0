"""A task of a Kubeflow pipeline from a use of a step: what every pipeline of this project is put together from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kfp import dsl
from kfp.dsl.pipeline_task import PipelineTask

from components.catalog import find_component
from pipelines.admission import bare
from pipelines.control import gate, gather_counts, gather_vectors
from pipelines.gather_inputs import NAME as GATHER
from pipelines.gather_inputs import gather_task
from pipelines.place import hand_down, place
from pipelines.placement import Placement
from pipelines.placement_table import PlacementTable
from pipelines.several_nodes import ask_for_nodes, launcher_of
from pipelines.watched import watch
from stillhouse.config import field_types
from stillhouse.graph import Use
from stillhouse.steps.execute import VERDICT
from stillhouse.steps.registry import find_step
from stillhouse.steps.spec import named
from stillhouse.surfaces.cached_step import RUN_CACHE, STAGE, stage_text
from stillhouse.surfaces.pipeline_parameters import RUN_CACHE_PARAMETER
from stillhouse.surfaces.recipes import Recipe
from stillhouse.versions.address import refuse_secret

GATE = "gate"
SHORT_PAUSE_SECONDS = 10
"""Before the retry of a task that is to say soon what it found."""


@dataclass(frozen=True)
class Pods:
    """Where the tasks of one pipeline run. Without a table, on this machine as its local runner has it.

    `chosen` holds the pipeline's parameters, as kfp hands them to the pipeline's function; `shards` is in how many
    parts a corpus is encoded and counted, a pod each; `pipeline` is its name. `recipe` holds the sections that a person
    wrote, for DVC's run cache, which goes by their words.
    """

    table: PlacementTable | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    shards: int = 1
    pipeline: str = ""
    recipe: Recipe = field(default_factory=dict)
    look: PipelineTask | None = None
    """The task that looks at the cluster before all others; it waits for nothing that may be missing."""
    asked: dict[str, Placement] = field(default_factory=dict)
    """The placements of the steps that tasks were made of; what that task looks for."""

    @property
    def unsharded(self) -> Pods:
        """The same for tasks of a loop, which are many already."""
        return replace(self, shards=1)

    def place(self, task: PipelineTask, step: str, label: str, *, retries: int | None = None) -> PipelineTask:
        """Names a task `label` and gives it the pod of `step`, a step's name or that of a component that is none.

        `retries` is for a task whose failure is mostly its answer, which another try would give again: that many at
        most, after a short pause, so that it is heard of soon.

        Kubeflow's own cache is off: it knows an input by its name and an image by its text, so that a changed corpus or
        a changed program would be taken for what was there before.
        """
        task.set_display_name(label).set_caching_options(False)
        if not self.table:
            return task
        return self._put(task, self.asked.setdefault(step, self.table.of(step)), step, label, retries)

    def place_bare(self, task: PipelineTask, step: str, label: str, *, retries: int | None = None) -> PipelineTask:
        """The same for a task that must begin whatever is missing: without volumes, secrets and queue."""
        task.set_display_name(label).set_caching_options(False)
        if not self.table:
            return task
        return self._put(task, bare(self.table.of(step)), step, label, retries)

    def _put(
        self, task: PipelineTask, placement: Placement, step: str, label: str, retries: int | None
    ) -> PipelineTask:
        if retries is not None:
            placement = _retried_soon(placement, retries)
        several = placement.nodes > 1
        place(task, launcher_of(placement) if several else placement, step, self.chosen)
        watch(task, placement.environment, self.pipeline, label, scraped=not several)
        return ask_for_nodes(task, placement, step, label, self.chosen) if several else task

    def place_first(self, task: PipelineTask, step: str, label: str, *, retries: int) -> PipelineTask:
        """The same for the first task of a pipeline's own, which begins once the cluster was looked at."""
        placed = self.place(task, step, label, retries=retries)
        return placed.after(self.look) if self.look else placed

    def place_use(self, task: PipelineTask, use: Use) -> PipelineTask:
        """The same for the task of a use, which finds itself in DVC's run cache where it is told of one."""
        placement = self.table.of(use.step_name) if self.table else None
        environment = placement.environment if placement else os.environ
        own = environment.get(RUN_CACHE, "")
        refuse_secret(own, RUN_CACHE)
        chosen = placement is not None and bool(placement.run_cache)
        if own or chosen:
            task.set_env_variable(STAGE, stage_text(use, self.recipe.get(use.section, {})))
        self.place(task, use.step_name, use.name)
        if chosen:
            hand_down(task, (RUN_CACHE_PARAMETER,), self.chosen)
        return task


def _retried_soon(placement: Placement, retries: int) -> Placement:
    return replace(
        placement,
        retries=min(retries, placement.retries),
        retry_after_seconds=min(SHORT_PAUSE_SECONDS, placement.retry_after_seconds),
    )


HERE = Pods()


def make_task(use: Use, settings: Mapping[str, Any], tasks: dict[str, PipelineTask], pods: Pods = HERE) -> PipelineTask:
    """The task of `use` with its settings, fed by the outputs of earlier `tasks`.

    What is given the verdict of the validation waits for the gate, which it adds to `tasks` where there is none yet.
    """
    values = dict(settings)
    values |= {key: _output(source, tasks) for key, source in use.inputs.items() if not use.step.port_of(key).many}
    if VERDICT in values and GATE not in tasks:
        tasks[GATE] = pods.place(gate(validation=values[VERDICT]), GATE, GATE, retries=1)
    if use.step_name == "index" and pods.shards > 1:
        values["vectors"] = _encode_in_shards(use, values, tasks, pods)
        use = replace(use, inputs={**use.inputs, "vectors": f"{use.name}_vectors/vectors"})
    if use.step_name == "importance" and pods.shards > 1:
        values |= {"counts": _count_in_shards(use, values, pods), "own": False}
        use = replace(use, inputs={**use.inputs, "counts": f"{use.name}_counts/counts"})
    values |= _gathered(use, tasks, pods)
    task = pods.place_use(find_component(use.step)(**values), use)
    return task.after(tasks[GATE]) if VERDICT in values else task


def _output(source: str, tasks: Mapping[str, PipelineTask]) -> Any:
    origin, output = source.split("/")
    return tasks[origin].outputs[output]


def _gathered(use: Use, tasks: Mapping[str, PipelineTask], pods: Pods) -> dict[str, Any]:
    """The inputs of a component for ports that take many folders, put together by a task of its own."""
    artifacts = {
        port: {name: _output(source, tasks) for name, source in named(use.inputs, port.name).items()}
        for port in use.step.inputs
        if port.many and port.keys(use.inputs)
    }
    if not artifacts:
        return {}
    task = pods.place(gather_task(artifacts), GATHER, f"{use.name}_inputs")
    return {port.component_input: task.outputs[port.component_input] for port in artifacts}


def _encode_in_shards(use: Use, values: Mapping[str, Any], tasks: Mapping[str, PipelineTask], pods: Pods) -> Any:
    """The corpus's vectors, encoded by as many tasks as there are shards, side by side, and put into one folder."""
    parts = _in_shards("encode", use, values, pods, [tasks[GATE]] if VERDICT in values else [])
    together = gather_vectors(parts=parts["vectors"])
    return pods.place(together, "gather-vectors", f"{use.name}_vectors").outputs["vectors"]


def _count_in_shards(use: Use, values: Mapping[str, Any], pods: Pods) -> Any:
    """The n-gram counts of the corpus, counted by as many tasks as there are shards, side by side, and added up."""
    parts = _in_shards("count", use, values, pods, [])
    together = gather_counts(parts=parts["counts"])
    return pods.place(together, "gather-counts", f"{use.name}_counts").outputs["counts"]


def _in_shards(
    step_name: str, use: Use, values: Mapping[str, Any], pods: Pods, after: Sequence[PipelineTask]
) -> dict[str, Any]:
    """What a step makes of all shards, by output. Its settings and inputs are those of `use` that it has too."""
    step = find_step(step_name)
    shared = {name: values[name] for name in field_types(step.config) if name in values}
    ports = {port.name: values[port.name] for port in step.inputs if port.name in values}
    sharded = Use(f"{use.name}_shard", step.name, {port: use.inputs[port] for port in ports})
    with dsl.ParallelFor(list(range(1, pods.shards + 1)), name=f"{use.name}-shards") as shard:
        # kfp takes every item of a loop for text, whatever the items are.
        shard.channel_type = "Integer"
        part = find_component(step)(**ports, **shared, shard=shard, shards=pods.shards)
        pods.place_use(part, sharded).after(*after)
    return {port.name: dsl.Collected(part.outputs[port.name]) for port in step.outputs}
