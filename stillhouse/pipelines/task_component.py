"""The component of a task: kfp needs a static signature, but a task's signature depends on the recipe.

So this module writes a function for the task when the pipeline is compiled. It has an input for every artifact from
another task, an output for every artifact that it passes on, one text with its steps and their settings, and the
pipeline parameters that the steps read. Only lightweight components both compile for a cluster and run with artifacts
in the local runner of kfp 2.17, and kfp reads their interface and program from the source of a function. A custom
`ComponentSpec`, as for a container component, would lose its outputs there.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from stillhouse.components.image import image
from stillhouse.errors import InputError
from stillhouse.kubernetes.pods.component_views import views_of
from stillhouse.kubernetes.pods.task import METRICS, PAGE, RUN, STEPS, port_name
from stillhouse.workflow.tasks import Task


def task_component(task: Task, chosen: Mapping[str, type]) -> BaseComponent:
    """The component of a task; `chosen` has the types of the pipeline parameters that it receives.

    Raises `InputError` for a use whose name Kubeflow does not accept.
    """
    if keyword.iskeyword(task.name):
        raise InputError(f"Kubeflow cannot run a stage called {task.name!r}, a Python keyword; rename it")
    declared = [f"{name}: str" for name in (RUN, STEPS)]
    declared += [f"{name}: {kind.__name__}" for name, kind in chosen.items()]
    declared += [*_inputs(task), *_outputs(task)]
    declared += [
        f"{port_name(f'{use.name}/{view.name}')}: Output[{view.kind}]"
        for use in task.uses
        for view in views_of(use.step_name)
    ]
    declared += [f"{METRICS}: Output[Metrics]", f"{PAGE}: Output[Markdown]"]
    taken = [entry.partition(":")[0] for entry in declared]
    twice = sorted({name for name in taken if taken.count(name) > 1})
    if twice:
        raise InputError(f"{', '.join(twice)} has two meanings in Kubeflow's task {task.name}; rename a stage")
    return _written(
        task.name, tuple(declared), "stillhouse.kubernetes.pods.task", f'run_task("{task.name}", locals())', image()
    )


def trial_component(task: Task) -> BaseComponent:
    """The component of the rung `query_only`, which finds out in its pod which of the uses of `task` it runs."""
    declared = [f"{RUN}: str", "planned: Input[Dataset]"]
    declared += [*_inputs(task), *_outputs(task)]
    declared += ["refreshed: Output[Dataset]", f"{METRICS}: Output[Metrics]", f"{PAGE}: Output[Markdown]"]
    module = "stillhouse.kubernetes.pods.query_trial"
    return _written(task.name, tuple(declared), module, f'run_trial("{task.name}", locals())', image())


def variants_component(task: Task) -> BaseComponent:
    """The component that runs the uses of a comparison's variants on the inputs of `task`, and writes its page."""
    declared = [f"{name}: str" for name in (RUN, "sweep", "uses", "items")]
    declared += _inputs(task)
    declared += ["reference: Input[Dataset]", "comparison: Output[Dataset]", "html: Output[HTML]"]
    declared += [f"{METRICS}: Output[Metrics]"]
    module = "stillhouse.kubernetes.pods.compare"
    return _written("compare_variants", tuple(declared), module, "run_variants(locals())", image())


def _inputs(task: Task) -> list[str]:
    return [f"{port_name(source)}: Input[{task.holds(source)}]" for source in task.inputs]


def _outputs(task: Task) -> list[str]:
    return [f"{port_name(source)}: Output[{task.output_port(source).holds}]" for source in task.outputs]


@cache
def _written(name: str, declared: tuple[str, ...], module: str, call: str, base_image: str) -> BaseComponent:
    """The component `name` with these arguments, whose body calls a function of `module`."""
    arguments = "".join(f"    {entry},\n" for entry in declared)
    function = call.partition("(")[0]
    source = f"""from kfp.dsl import ClassificationMetrics, Dataset, HTML, Input, Markdown, Metrics, Model, Output


def {name}(
{arguments}):
    from {module} import {function}

    {call}
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
