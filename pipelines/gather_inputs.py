"""The task that puts artifacts of several tasks into the folders that a component with ports for many takes.

kfp reads a component's interface and program from the source of a function, and hands over a list of artifacts only
where one task of a loop made them all. So a component with an input for each artifact is written for each set of names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent
from kfp.dsl.pipeline_task import PipelineTask

from components.image import image
from stillhouse.errors import InputError
from stillhouse.steps.spec import Port

NAME = "gather-inputs"


def gather_task(artifacts: Mapping[Port, Mapping[str, Any]]) -> PipelineTask:
    """The task that gathers `artifacts`, {port: {name: artifact}}; its outputs are the component's inputs by name."""
    given = {
        port.component_input: {name: f"{port.name}_{name.replace('-', '_')}" for name in by_name}
        for port, by_name in artifacts.items()
    }
    arguments = {
        given[port.component_input][name]: artifact
        for port, by_name in artifacts.items()
        for name, artifact in by_name.items()
    }
    if len(arguments) < sum(map(len, artifacts.values())):
        raise InputError(
            f"names that differ in - and _ alone cannot go to Kubeflow: {', '.join(map(str, given.values()))}"
        )
    kinds = tuple((port.component_input, port.holds, tuple(given[port.component_input].values())) for port in artifacts)
    return _component(kinds, image())(given=json.dumps(given), **arguments)


@cache
def _component(outputs: tuple[tuple[str, str, tuple[str, ...]], ...], base_image: str) -> BaseComponent:
    """The component that gathers to these outputs: name, type and the inputs that go there."""
    with TemporaryDirectory() as folder:
        # kfp reads a function's source from its file, and the types of its signature as they stand there.
        path = Path(folder) / "gathering.py"
        path.write_text(f"from kfp.dsl import Dataset, Input, Model, Output\n\n\n{_source(outputs)}", encoding="utf-8")
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None, path
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return dsl.component(base_image=base_image, install_kfp_package=False)(module.gather_inputs)


def _source(outputs: tuple[tuple[str, str, tuple[str, ...]], ...]) -> str:
    inputs = [f"    {name}: Input[{holds}],\n" for _, holds, arguments in outputs for name in arguments]
    written = [f"    {output}: Output[{holds}],\n" for output, holds, _ in outputs]
    return f"""def gather_inputs(
    given: str,
{"".join(inputs + written)}):
    from stillhouse.surfaces.run_control import gather_inputs

    gather_inputs(locals())
"""
