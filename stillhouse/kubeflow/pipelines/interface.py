"""The interface of a pipeline: its parameters with types, defaults and descriptions, and the parts all share."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from stillhouse.core.config import field_types
from stillhouse.core.setting_kinds import as_form, form_type
from stillhouse.kubeflow.pipelines.control import END, report_end
from stillhouse.kubeflow.pipelines.image import image
from stillhouse.kubeflow.pipelines.place import IMAGE
from stillhouse.kubeflow.pipelines.placement_table import PlacementTable
from stillhouse.kubeflow.pipelines.tasks import Pods

HELP = {
    IMAGE: "the image of every step, by digest: REGISTRY/NAME@sha256:DIGEST",
    "accelerator_type": "the GPU resource: nvidia.com/gpu or nvidia.com/mig-3g.40gb",
    "accelerator_count": "GPUs per pod; training uses all of them",
}
"""Help texts in the run form for the parameters from placements."""


@dataclass(frozen=True)
class PipelineInput:
    """One parameter of a pipeline; it is required if its default is None."""

    name: str
    kind: type
    default: Any
    help: str


def make_pipeline(
    name: str,
    description: str,
    inputs: Sequence[PipelineInput],
    table: PlacementTable | None,
    body: Callable[[dict[str, Any], Pods], None],
) -> BaseComponent:
    """A pipeline whose tasks `body` makes from the parameters by name and the pods that run them.

    A last task always reports how the run ended. With a table of placements, the image and the placements' open choices
    become parameters.
    """
    every = [*inputs, *(placement_inputs(table) if table else [])]
    # A signature has required parameters first.
    in_order = sorted(every, key=lambda entry: entry.default is not None)
    names = [entry.name for entry in in_order]

    def pipeline(*arguments: Any) -> None:
        given = dict(zip(names, arguments))
        pods = Pods(table, given, name)
        end = report_end()(pipeline=name, run=dsl.PIPELINE_JOB_NAME_PLACEHOLDER)
        with dsl.ExitHandler(pods.place(end, END, "report_end", waits=False), name=name):
            body(given, pods)

    def parameter(entry: PipelineInput) -> inspect.Parameter:
        default = inspect.Parameter.empty if entry.default is None else entry.default
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(entry.name, kind, annotation=entry.kind, default=default)

    # kfp reads a pipeline's interface from its signature, and the descriptions from its docstring.
    pipeline.__signature__ = inspect.Signature(list(map(parameter, in_order)))  # type: ignore[attr-defined]
    arguments = "".join(f"\n    {entry.name}: {entry.help}." for entry in every)
    pipeline.__doc__ = f"{description}\n\nArgs:{arguments}\n"
    return dsl.pipeline(name=name, description=f"{description}\n\n{explained(every)}")(pipeline)


def explained(inputs: Sequence[PipelineInput]) -> str:
    """The parameters as a Markdown list, since Kubeflow's form only shows their sorted names."""
    must = {entry.name: " Required." if entry.default is None else "" for entry in inputs}
    return "\n".join(f"- `{entry.name}`: {entry.help}.{must[entry.name]}" for entry in inputs)


def config_inputs(config: type, defaults: Mapping[str, Any] | None = None) -> list[PipelineInput]:
    """The parameters of a pipeline whose settings are a dataclass; `defaults` override its own."""
    kinds, own = field_types(config), dict(defaults or {})
    return [
        PipelineInput(
            field.name,
            form_type(kinds[field.name]),
            None if field.metadata.get("required") else as_form(own.get(field.name, field.default), kinds[field.name]),
            field.metadata["help"],
        )
        for field in dataclasses.fields(config)
    ]


def placement_inputs(table: PlacementTable) -> list[PipelineInput]:
    """The image and the open choices of the placements. All are text, since the backend puts them into pods."""
    defaults = {IMAGE: image()} | table.parameters
    return [PipelineInput(name, str, default, HELP.get(name, name)) for name, default in defaults.items()]
