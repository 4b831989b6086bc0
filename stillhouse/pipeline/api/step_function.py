"""Steps as functions: their parameters and help come from the step, and they do what the command of that name does."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from stillhouse.core.config import build, field_types
from stillhouse.core.setting_kinds import kind_of
from stillhouse.models.acceleration.threads import prepare_threads
from stillhouse.pipeline.api.results import Evaluation, Folder, StepResult
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.steps.spec import Port, Step

Setting = bool | int | float | str | os.PathLike[str] | Sequence[float] | Sequence[str] | Mapping[str, str] | None
"""The value of a setting; a path is converted to a string."""

FIRST = {"ingest": "source", "fetch-model": "model"}
"""The setting of a step without required inputs that its function takes first."""

Function = Callable[..., Any]


def step_function(name: str) -> Function:
    """The function that runs the step `name`.

    Its parameters are the step's required inputs, `output`, and by keyword its optional inputs and its settings. An
    input that takes several folders is a mapping of names to folders.

        index = step_function("index")
        result = index(corpus, retriever, "work", kind="ivfsq8")
    """
    step = find_step(name)
    bound = inspect.Signature([*_folders(step), _parameter("settings", inspect.Parameter.VAR_KEYWORD)])

    def function(*given: Any, **named: Any) -> StepResult:
        arguments = bound.bind(*given, **named).arguments
        settings = arguments.pop("settings", {})
        return run_step(step, step.identifier, arguments, settings)

    function.__name__ = function.__qualname__ = step.identifier
    function.__module__ = "stillhouse"
    outputs = ", ".join(f"`{port.name}`, {port.help}" for port in step.outputs)
    lines = [f"{step.help[0].upper()}{step.help[1:]}.", "", f"The outputs are folders of `output`: {outputs}."]
    lines += ["", "Inputs:", *_explained({shown(port): port.help for port in step.inputs})]
    function.__doc__ = "\n".join(lines)
    function.__signature__ = inspect.Signature(_folders(step))  # type: ignore[attr-defined]
    return with_settings(step)(function)


def with_settings(step: Step, but: Collection[str] = ()) -> Callable[[Function], Function]:
    """Show the settings of a step in a function's signature and help, in place of `**settings`; all `but` these."""

    def shown_in(function: Function) -> Function:
        signature = inspect.signature(function)
        named = [of for of in signature.parameters.values() if of.kind is not of.VAR_KEYWORD]
        known, kinds = {of.name for of in named} | set(but), field_types(step.config)
        left = [setting for setting in fields(step.config) if setting.name not in known]
        keywords = [
            _parameter(of.name, default=of.default, annotation=kind_of(kinds[of.name]).annotation) for of in left
        ]
        function.__signature__ = signature.replace(parameters=[*named, *keywords])  # type: ignore[attr-defined]
        explained = _explained({of.name: of.metadata["help"] for of in left})
        lines = [inspect.getdoc(function) or "", "", f"Settings of `{step.name}`:", *explained]
        function.__doc__ = "\n".join(lines)
        return function

    return shown_in


def shown(port: Port) -> str:
    """The name of the parameter that takes an input: in the plural if it takes several folders."""
    return f"{port.name}s" if port.many and not port.name.endswith("s") else port.name


def run_step(step: Step, caller: str, arguments: Mapping[str, Any], settings: Mapping[str, Setting]) -> StepResult:
    """Run a step with the `arguments` of its function and return its result.

    Each output is a folder of its name below `arguments["output"]`. The result stands for the output with the step's
    own name, or else the first. Raises as `execute` does, and `InputError` for an unknown setting or an invalid value,
    with the name of the function `caller`.
    """
    prepare_threads()
    inputs: dict[str, Folder] = {}
    for port in step.inputs:
        folders = arguments.get(shown(port))
        inputs |= {f"{port.name}/{own}": of for own, of in (folders or {}).items()} if port.many else {}
        inputs |= {port.name: folders} if folders is not None and not port.many else {}
    own = {name: arguments[name] for name in field_types(step.config) if name in arguments}
    values = {name: os.fspath(of) if isinstance(of, os.PathLike) else of for name, of in {**own, **settings}.items()}
    config: Any = build(step.config, values, f"{caller}()")
    outputs = {port.name: Path(arguments["output"]) / port.name for port in step.outputs}
    report = execute(step, config, {name: Path(folder) for name, folder in inputs.items()}, outputs)
    folder = outputs.get(step.identifier) or next(iter(outputs.values()))
    kind = Evaluation if step.name == "evaluate" else StepResult
    return kind(folder, outputs, report.summary, report.metrics, report.facts)


def _folders(step: Step) -> list[inspect.Parameter]:
    """The parameters of a step's function that are not settings, except the one that it takes first."""
    position = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = [FIRST[step.name]] if step.name in FIRST else []
    first += [shown(port) for port in step.inputs if not port.optional]
    found = [_parameter(name, position, annotation="Folder") for name in (*first, "output")]
    others = [port for port in step.inputs if port.optional]
    return found + [_parameter(shown(port), default=None, annotation="Folder | None") for port in others]


def _parameter(name: str, kind: Any = inspect.Parameter.KEYWORD_ONLY, **more: Any) -> inspect.Parameter:
    return inspect.Parameter(name, kind, **more)


def _explained(helps: Mapping[str, str]) -> list[str]:
    lines = [f"    {name}: {text}" for name, text in helps.items()]
    return [textwrap.fill(line, 100, subsequent_indent="        ") for line in lines]
