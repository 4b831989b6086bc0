"""Runs a step as a function, with the same checks, manifests and outputs as the command of that name."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_type_hints

from stillhouse.acceleration.threads import prepare_threads
from stillhouse.api.results import Folder, StepResult
from stillhouse.config import build, field_types
from stillhouse.setting_kinds import kind_of
from stillhouse.steps.execute import execute
from stillhouse.steps.spec import Step

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R", bound=StepResult)

Setting = bool | int | float | str | os.PathLike[str] | Sequence[float] | Sequence[str] | Mapping[str, str] | None
"""The value of a setting; a path is converted to a string."""


def settings_of(step: Step, but: Collection[str] = ()) -> Callable[[F], F]:
    """Show the settings of a step in a function's signature and help, in place of `**settings`; all `but` these."""

    def shown(function: F) -> F:
        signature = inspect.signature(function)
        named = [
            parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD
        ]
        known, kinds = {parameter.name for parameter in named} | set(but), field_types(step.config)
        left = [setting for setting in fields(step.config) if setting.name not in known]
        keywords = [
            inspect.Parameter(
                setting.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=setting.default,
                annotation=kind_of(kinds[setting.name]).annotation,
            )
            for setting in left
        ]
        function.__signature__ = signature.replace(parameters=[*named, *keywords])  # type: ignore[attr-defined]
        lines = [f"    {setting.name}: {setting.metadata['help']}" for setting in left]
        wrapped = [textwrap.fill(line, 100, subsequent_indent="        ") for line in lines]
        function.__doc__ = "\n".join([inspect.getdoc(function) or "", "", f"Settings of `{step.name}`:", *wrapped])
        return function

    return shown


def runs(step: Step, *, main: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function run a step; its own body, which is empty, only declares the parameters.

    These are the step's inputs and `output`; others are settings. An input that takes several folders is a mapping of
    names to folders. `main` is as in `run_step`, and the function's return type is the kind of the result.
    """
    ports = {f"{port.name}{'s' * (port.many and not port.name.endswith('s'))}": port for port in step.inputs}

    def running(function: Callable[P, R]) -> Callable[P, R]:
        signature, kind = inspect.signature(function), get_type_hints(function)["return"]

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            function(*args, **kwargs)  # raises Python's own error for a missing argument
            given = signature.bind(*args, **kwargs).arguments
            output, settings = given.pop("output"), given.pop("settings", {})
            inputs: dict[str, Folder | None] = {}
            for name in [name for name in given if name in ports]:
                port, folders = ports[name], given.pop(name)
                if port.many:
                    inputs |= {f"{port.name}/{own}": folder for own, folder in (folders or {}).items()}
                else:
                    inputs[port.name] = folders
            result: R = run_step(kind, step, function.__name__, inputs, output, given | settings, main)
            return result

        return settings_of(step)(called)

    return running


def run_step(
    kind: type[R],
    step: Step,
    caller: str,
    inputs: Mapping[str, Folder | None],
    output: Folder,
    settings: Mapping[str, Setting],
    main: str = "",
) -> R:
    """Run a step and return its result; each output is a folder of its name below `output`.

    Optional `inputs` may be None. `main` names the output that the result stands for; the default is the first. Raises
    as `execute` does, and `InputError` for an unknown setting or an invalid value, with the name of the function
    `caller`.
    """
    prepare_threads()
    plain = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in settings.items()}
    config: Any = build(step.config, plain, f"{caller}()")
    folders = {port.name: Path(output) / port.name for port in step.outputs}
    report = execute(
        step, config, {name: Path(folder) for name, folder in inputs.items() if folder is not None}, folders
    )
    folder = folders[main or step.outputs[0].name]
    return kind(folder, folders, report.summary, report.metrics, report.facts)
