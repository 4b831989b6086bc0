"""The Kubeflow component of a stage: it is written as source, because kfp reads a component's interface from there.

Its body is one call of the function that runs the stage. It reads the recipe of the run and the folders of earlier
stages, and hands on one folder, its figures and a page. The digests of what it computes and of what it reads are
arguments, which Kubeflow's cache compares: inputs themselves it identifies by their names alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from stillhouse.kubeflow.pipelines.image import image
from stillhouse.kubeflow.pods.stage import DIGEST, FOLDER, METRICS, PAGE, PLAN, RECIPE
from stillhouse.kubeflow.pods.task import PACKAGE
from stillhouse.pipeline.graph_steps import Stage

CALL = re.compile(r'from (\S+) import (\S+)\n +return \w+\((?:"(\w[\w-]*)", )?locals\(\)\)')
OUTPUTS = (f"{METRICS}: Output[Metrics]", f"{PAGE}: Output[HTML]")


def kind_of(stage: Stage) -> str:
    """The type that Kubeflow shows for a stage's folder."""
    return "Model" if any(port.kind == "model" for step in stage.steps for port in step.spec.outputs) else "Dataset"


def stage_component(
    stage: Stage, reads: Sequence[Stage], module: str, call: str, *more: str, after: Sequence[str] = ()
) -> BaseComponent:
    """The component of a stage, which reads the folders of other stages. `call` is a function of `module` that takes
    the stage's name and its arguments; `more` declares further inputs, and `after` optional ones."""
    declared = (
        f"{RECIPE}: Input[Dataset]",
        f"{PLAN}: str",
        *(f"{DIGEST.format(other.name)}: str" for other in reads),
        *more,
        *(f"{other.name}: Input[{kind_of(other)}]" for other in reads),
        f"{FOLDER}: Output[{kind_of(stage)}]",
        *OUTPUTS,
        *after,
    )
    return written(stage.name, declared, module, call, stage.name, "str")


def written(
    name: str, declared: Sequence[str], module: str, function: str, known: str = "", returns: str = ""
) -> BaseComponent:
    """The component `name` with these arguments, whose body calls `function` of `module` with them, after `known`."""
    given = f'"{known}", locals()' if known else "locals()"
    return _written(name, tuple(declared), module, function, given, returns, image())


def call_of(source: str) -> list[str]:
    """The module, the function and what it is given besides the arguments, in the source of such a component."""
    found = CALL.search(source)
    assert found, source
    module, function, known = found.groups()
    return [module.removeprefix(f"{PACKAGE}."), function, *([known] if known else [])]


@cache
def _written(
    name: str, declared: tuple[str, ...], module: str, function: str, given: str, returns: str, base_image: str
) -> BaseComponent:
    arguments = ",\n".join(declared)
    source = f"""from typing import NamedTuple

from kfp.dsl import Dataset, HTML, Input, Markdown, Metrics, Model, Output, OutputPath, PipelineTaskFinalStatus


def {name}(
{arguments},
){f" -> {returns}" if returns else ""}:
    from {module} import {function}
    return {function}({given})
"""
    with TemporaryDirectory() as folder:
        # kfp reads a function's source from its file, and the types of its signature directly.
        path = Path(folder) / f"{name}.py"
        path.write_text(source, encoding="utf-8")
        spec = spec_from_file_location(f"written_{name}", path)
        assert spec is not None and spec.loader is not None, path
        program = module_from_spec(spec)
        spec.loader.exec_module(program)
        return dsl.component(base_image=base_image, install_kfp_package=False)(getattr(program, name))
