"""`stillhouse <step>`: flags come from the declaration of the step, settings from a recipe and from flags."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import os
from collections.abc import Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from stillhouse.core import context
from stillhouse.core.config import build, check_value, field_types, read_recipe, refuse_unknown, refuse_unknown_sections
from stillhouse.core.environment import environment_variables
from stillhouse.core.errors import InputError
from stillhouse.core.own_files import own_file, refuse_foreign_file
from stillhouse.core.setting_kinds import Kind, as_flag, from_text, kind_of
from stillhouse.pipeline.graph import GRAPH, GRAPHS, STAGES, GraphStep, graph_of, known_steps
from stillhouse.pipeline.key_names import keys_in_errors
from stillhouse.pipeline.parser import Parser, flag, output_file, output_folder
from stillhouse.pipeline.steps.execute import execute, write_report
from stillhouse.pipeline.steps.registry import steps
from stillhouse.pipeline.steps.spec import NAME, Step, flag_of

DEVICES = ("auto", "cpu", "cuda")
COMMON_FLAGS = ("params", "report", "work", "device", "engine", "quiet", "help")
"""Flags that every step has; no port and no setting may have such a name."""


def main(step: Step, argv: Sequence[str]) -> int:
    arguments = step_parser(step).parse(argv)
    where, values = f"stillhouse {step.name}", dict[str, Any]()
    if arguments.params:
        recipe, section = split_section(arguments.params, step.identifier)
        where, values = f"{recipe}: {section}", dict(read_section(step, recipe, section))
    given = given_settings(arguments, step.config)
    config: Any = build(step.config, values | given, where)
    inputs = given_inputs(step, arguments)
    outputs = {}
    for port in step.outputs:
        outputs[port.name] = getattr(arguments, port.name)
        if outputs[port.name] is None:
            raise InputError(f"step '{step.name}' needs {port.flag} FOLDER to write to ({port.help})")
    if arguments.report:
        refuse_foreign_file(arguments.report)
    in_recipe: AbstractContextManager[None] = nullcontext()
    if arguments.params:
        in_recipe = keys_in_errors(step, recipe, section, given)
    with environment(arguments), in_recipe:
        report = execute(step, config, inputs, outputs)
    if arguments.report and context.rank() == 0:  # only the first process writes, as with the outputs
        with own_file(arguments.report) as path:
            write_report(path, report)
    return 0


def given_inputs(step: Step, arguments: argparse.Namespace) -> dict[str, Path]:
    """The input folders of a command line. Raises `InputError` for a malformed or repeated `NAME=FOLDER`."""
    found: dict[str, Path] = {}
    for port in step.inputs:
        given = getattr(arguments, port.name)
        if not port.many:
            found |= {port.name: given} if given else {}
            continue
        for text in given or ():
            name, equals, folder = text.partition("=")
            if not equals or not folder or not NAME.fullmatch(name):
                raise InputError(
                    f"{port.flag} {text}: write {port.takes}, a name of letters, digits, _ and -, as in "
                    f"{port.flag} bm25=artifacts/bm25/{port.name}"
                )
            if f"{port.name}/{name}" in found:
                raise InputError(f"{port.flag} {name} is given twice; give each folder its own name")
            found[f"{port.name}/{name}"] = Path(folder)
    return found


def step_parser(step: Step) -> Parser:
    """The parser of one step, with a flag for every input, output and setting, and the common flags."""
    description = f"{step.help[0].upper()}{step.help[1:]}."
    parser = Parser(step.name, description, _example(step))
    for title, ports, kind in (("reads", step.inputs, Path), ("writes", step.outputs, output_folder)):
        group = parser.add_argument_group(title) if ports else None
        for port in ports:
            assert group is not None
            notes = ["optional"] * port.optional + ["can be repeated"] * port.many
            notes += ["a file is a TREC run of another tool"] * port.file
            text = port.help + (f" ({'; '.join(notes)})" if notes else "")
            if port.many:
                group.add_argument(port.flag, dest=port.name, metavar=port.takes, action="append", help=text)
            else:
                group.add_argument(port.flag, dest=port.name, metavar="FOLDER", type=kind, help=text)
    group = parser.add_argument_group("settings (default < --params < flag)")
    add_setting_flags(group, step.config)
    group = parser.add_argument_group("how it runs")
    flag(
        group,
        "--params FILE[:SECTION]",
        "the recipe to read settings from (default section: the one named after the step)",
    )
    flag(group, "--report FILE", "write the summary and metrics to FILE as JSON", output_file)
    add_context_flags(group)
    if step.divided:
        add_engine_flag(group)
    return parser


def add_setting_flags(group: argparse._ActionsContainer, config: type, names: Container[str] | None = None) -> None:
    """A flag for every setting of a class, or for those in `names`; `given_settings` reads their values."""
    kinds = field_types(config)
    for field in own_first(config):
        if names is not None and field.name not in names:
            continue
        known = kind_of(kinds[field.name])
        # A switch needs no value: `--normalize` means `--normalize true`.
        bare: dict[str, Any] = {"nargs": "?", "const": "true"} if known == Kind(bool) else {}
        group.add_argument(
            flag_of(field.name), dest=field.name, metavar=metavar_of(known), help=describe(field), **bare
        )


def given_settings(arguments: argparse.Namespace, config: type, names: Container[str] | None = None) -> dict[str, Any]:
    """The values of the flags of `add_setting_flags` that were given.

    Raises `InputError`, which names the flag, for a value of the wrong type or out of its range.
    """
    kinds, given = field_types(config), {}
    for field in dataclasses.fields(config):
        if names is not None and field.name not in names:
            continue
        text = getattr(arguments, field.name)
        if text is not None:
            flag, kind = flag_of(field.name), kinds[field.name]
            given[field.name] = check_value(from_text(text, kind, flag), kind, field.metadata, flag)
    return given


def with_settings(arguments: argparse.Namespace, config: type) -> argparse.Namespace:
    """The arguments with the value of every setting of a class, in place of the texts of its flags."""
    found: Any = build(config, given_settings(arguments, config), "the command line")
    vars(arguments).update(vars(found))
    return arguments


def own_first(config: type) -> list[dataclasses.Field[Any]]:
    """The settings of a class in reading order: its own first, then inherited ones."""
    by_name = {field.name: field for field in dataclasses.fields(config)}
    order = [name for cls in config.__mro__ for name in inspect.get_annotations(cls)]
    return [by_name[name] for name in dict.fromkeys(order)]


def add_engine_flag(group: argparse._ActionsContainer) -> None:
    flag(
        group,
        "--engine ENGINE",
        "how to distribute reading and tokenizing a large corpus: local (one process), ray, "
        f"ray:N (N local processes) or ray://HOST:PORT (default: ${context.ENGINE} or local)",
    )


def add_context_flags(group: argparse._ActionsContainer) -> None:
    """Flags for everything but data: where unfinished work is kept, the device, progress bars."""
    flag(
        group,
        "--work FOLDER",
        f"where to keep unfinished work (default: ${context.WORK_ROOT} or .stillhouse/work)",
        output_folder,
    )
    group.add_argument(
        "--device",
        choices=DEVICES,
        help=f"the device to compute on (default: ${context.DEVICE} or auto: a GPU if there is one)",
    )
    flag(group, "--quiet", "hide progress bars and log lines")


def environment(arguments: argparse.Namespace, folder: Path | None = None) -> AbstractContextManager[None]:
    """Sets the environment variables of `stillhouse.core.context` from the context flags until the block ends.

    A command that writes everything to one `folder` keeps unfinished work there, unless another place is given.
    """
    work = arguments.work
    if folder is not None and work is None and not os.environ.get(context.WORK_ROOT):
        work = folder / ".stillhouse" / "work"
    values = {
        context.WORK_ROOT: work,
        context.DEVICE: arguments.device,
        context.ENGINE: getattr(arguments, "engine", None),
        context.QUIET: arguments.quiet or None,
    }
    chosen = {name: "1" if value is True else str(value) for name, value in values.items() if value is not None}
    return environment_variables(chosen)


def split_section(text: str, default: str) -> tuple[Path, str]:
    """Splits `params.yaml:retriever_1` into a path and a section; the path itself may contain colons."""
    path, colon, section = text.rpartition(":")
    if colon and path and "/" not in section and not Path(text).is_file():
        return Path(path), section
    return Path(text), default


def read_section(spec: Step, path: Path, section: str) -> Mapping[str, Any]:
    """The settings that a recipe gives one step; empty if the recipe leaves the section out.

    The recipe of a whole run has a section for each step of the graph and no others. A section named after a step that
    is not in the graph belongs to a file for that step alone.
    """
    recipe = read_recipe(path)
    own = {name: step.spec for name, step in known_steps(recipe, str(path)).items()}
    known = own if section in own else own | {other.identifier: other for other in steps().values()}
    refuse_unknown(section, known, f"{path}: there is no section")
    if known[section].name != spec.name:
        raise InputError(f"{path}: section {section!r} is for step '{known[section].name}', not '{spec.name}'")
    refuse_unknown_sections(recipe, [GRAPH, *known, STAGES], str(path))
    return recipe.get(section, {})


def example_of(spec: Step) -> GraphStep:
    """The step that an example shows: the first in a graph, or one that reads what a graph's steps write."""
    known = [step for name in GRAPHS for step in graph_of({GRAPH: name})]
    made = {port.name: f"{step.name}/{port.name}" for step in reversed(known) for port in step.spec.outputs}
    needed = [port.name for port in spec.inputs if not port.optional]
    # Of a step that reads all of these, since an index belongs to one retriever.
    made |= next((dict(step.inputs) for step in known if step.inputs.keys() >= {*needed}), {})
    own = GraphStep(spec.identifier, spec.name, {name: made.get(name, f"{name}/{name}") for name in needed})
    return next((step for step in known if step.kind == spec.name), own)


def command_of(step: GraphStep) -> list[str]:
    """The command line that runs one step in a workspace; each list item is a flag with its value."""
    folders = step.input_paths() | step.output_paths()
    words = [f"stillhouse {step.kind}", f"--params params.yaml:{step.section}"]
    return words + [" ".join(step.spec.argument(key, folder.as_posix())) for key, folder in folders.items()]


def _example(step: Step) -> str:
    return "example:\n  " + " \\\n    ".join(command_of(example_of(step)))


def metavar_of(kind: Kind) -> str:
    """What stands for the value of a setting in help."""
    word = {bool: "true|false", int: "N", float: "X", str: "TEXT"}[kind.base]
    return {"one": word, "list": f"{word},…", "mapping": "NAME=TEXT,…"}[kind.shape]


def describe(field: dataclasses.Field[Any]) -> str:
    """A setting's help with its default, choices and range."""
    rules = field.metadata
    default = repr(field.default) if field.default == "" else as_flag(field.default)
    notes = [f"default: {default}"]
    if rules["choices"]:
        notes.append(f"one of {', '.join(rules['choices'])}")
    if rules["minimum"] is not None:
        notes.append(f"at least {rules['minimum']}")
    if rules["maximum"] is not None:
        notes.append(f"at most {rules['maximum']}")
    return f"{rules['help']} ({'; '.join(notes)})"
