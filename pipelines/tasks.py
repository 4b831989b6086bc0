"""A task of a Kubeflow pipeline from a use of a step: what every pipeline of this project is put together from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kfp.dsl.pipeline_task import PipelineTask

from components.catalog import find_component
from stillhouse.graph import Use
from stillhouse.surfaces.recipes import location_fields


def make_task(use: Use, settings: Mapping[str, Any], tasks: Mapping[str, PipelineTask]) -> PipelineTask:
    """The task of `use` with its settings, fed by the outputs of earlier `tasks`."""
    values = dict(settings)
    for port, source in use.inputs.items():
        origin, output = source.split("/")
        values[port] = tasks[origin].outputs[output]
    task = find_component(use.step)(**values).set_display_name(use.name)
    if location_fields(use.step):
        # What lies at a location can change while its name stays, and Kubeflow's cache would look at the name only.
        task.set_caching_options(False)
    return task
