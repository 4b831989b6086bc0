"""Renders components/<step>/component.py and README.md from the declarations of the steps.

    python -m stillhouse.components.render

A component repeats its step's folders and settings as a typed signature, because kfp reads the signature. This module
writes it, so that nobody has to keep the two in sync by hand; a test fails if they differ.
"""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from pathlib import Path
from typing import Any

from stillhouse.config import field_types
from stillhouse.filled_markdown import filled
from stillhouse.kubernetes.pods.component import METRICS
from stillhouse.kubernetes.pods.component_views import views_of
from stillhouse.setting_kinds import as_text, kind_of, plain
from stillhouse.steps.registry import steps
from stillhouse.steps.spec import Port, Step

FOLDER = Path(__file__).resolve().parent
RENDER = "python -m stillhouse.components.render"
FIRST_LINE = f"# Rendered by `{RENDER}`; change the step's declaration, not this file."
WIDTH = 116
KFP_NAMES = frozenset({"ClassificationMetrics", "Dataset", "HTML", "Input", "Markdown", "Metrics", "Model", "Output"})


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a component's function: its annotation, its default as code, and its help."""

    name: str
    annotation: str
    default: str | None
    help: str

    @property
    def code(self) -> str:
        return f"{self.name}: {self.annotation}" + ("" if self.default is None else f" = {self.default}")


def parameters(step: Step) -> list[Parameter]:
    """The parameters of a step's component, those without a default first, as Python requires."""
    inputs = [
        Parameter(port.component_input, f"Input[{port.holds}]", "None" if port.optional else None, help_of(port))
        for port in step.inputs
    ]
    outputs = [Parameter(port.name, f"Output[{port.holds}]", None, port.help) for port in step.outputs]
    outputs.append(Parameter(METRICS, "Output[Metrics]", None, "the step's figures"))
    outputs += [Parameter(view.name, f"Output[{view.kind}]", None, view.help) for view in views_of(step.name)]
    kinds = field_types(step.config)
    settings = [
        Parameter(field.name, *declared(kinds[field.name], field.default), field.metadata["help"])
        for field in dataclasses.fields(step.config)
    ]
    every = inputs + outputs + settings
    names = [parameter.name for parameter in every]
    assert len(names) == len(set(names)), f"step '{step.name}': two of its folders and settings share a name"
    return sorted(every, key=lambda parameter: parameter.default is not None)


def declared(hint: Any, default: Any) -> tuple[str, str]:
    """The type and default of a setting's parameter.

    A nullable setting with another default is JSON text, since kfp treats null as a missing parameter.
    """
    kind = kind_of(hint)
    if kind.optional and default is not None and kind.base is not str:
        return "str", literal(as_text(default))
    return kind.annotation, literal(default)


def help_of(port: Port) -> str:
    """The help of an input; if a port takes many folders, of the folder that holds them."""
    return f"a folder with one named folder for each: {port.help}" if port.many else port.help


def literal(value: Any) -> str:
    """A default as code in the project's style."""
    value = plain(value)
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def component_source(step: Step) -> str:
    shown = parameters(step)
    annotations = " ".join(parameter.annotation for parameter in shown)
    words = re.findall("[A-Za-z]+", annotations)
    used = sorted({word for word in words if word in KFP_NAMES}, key=lambda word: (not word.isupper(), word))
    arguments = "\n".join(_argument(parameter) for parameter in shown)
    signature = "\n".join(f"    {parameter.code}," for parameter in shown)
    typing = "from typing import Optional\n\n" if "Optional" in words else ""
    return f'''{FIRST_LINE}
{typing}from kfp import dsl
from kfp.dsl import {", ".join(used)}

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def {step.identifier}(
{signature}
):
{_paragraph('"""' + _sentence(step.help), 4)}

    Args:
{arguments}
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("{step.name}", locals())
'''


def readme(step: Step) -> str:
    """The component's page: its inputs, outputs and parameters as three tables."""
    settings = {field.name: field for field in dataclasses.fields(step.config)}
    kinds = field_types(step.config)
    lines = [
        f"# `{step.identifier}`",
        "",
        _sentence(step.help),
        "",
        f"The same step is `stillhouse {step.name}` on the command line. Rendered by `{RENDER}`.",
        "",
    ]
    if step.inputs:
        lines += ["| input | type | what it is |", "|---|---|---|"]
        for port in step.inputs:
            note = " (optional)" if port.optional else ""
            lines.append(f"| `{port.component_input}` | {port.holds} | {_cell(help_of(port))}{note} |")
        lines.append("")
    lines += ["| output | type | what it is |", "|---|---|---|"]
    lines += [f"| `{port.name}` | {port.holds} | {_cell(port.help)} |" for port in step.outputs]
    lines.append(f"| `{METRICS}` | Metrics | the step's figures |")
    lines += [f"| `{view.name}` | {view.kind} | {_cell(view.help)} |" for view in views_of(step.name)]
    lines += ["", "| parameter | type | default | what it sets |", "|---|---|---|---|"]
    for name, field in settings.items():
        rules = field.metadata
        listed = f"; one of {', '.join(rules['choices'])}" if rules["choices"] else ""
        annotation, default = declared(kinds[name], field.default)
        lines.append(f"| `{name}` | {annotation} | `{default}` | {_cell(rules['help'])}{listed} |")
    return filled("\n".join(lines) + "\n")


def rendered() -> dict[Path, str]:
    """Every rendered file and its text."""
    files = {}
    for step in steps().values():
        folder = FOLDER / step.identifier
        files[folder / "__init__.py"] = ""
        files[folder / "component.py"] = component_source(step)
        files[folder / "README.md"] = readme(step)
    return files


def _argument(parameter: Parameter) -> str:
    first, *later = _lines(parameter.help)
    parts = [_paragraph(f"{parameter.name}: {first}", 8, hanging=4)]
    return "\n".join(parts + [_paragraph(line, 12, hanging=4) for line in later]) + "."


def _paragraph(text: str, indent: int, hanging: int = 0) -> str:
    first, later = " " * indent, " " * (indent + hanging)
    return textwrap.fill(text.replace("\\", "\\\\"), WIDTH, initial_indent=first, subsequent_indent=later)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _cell(text: str) -> str:
    return "<br>".join(_lines(text)).replace("|", "\\|")


def _lines(text: str) -> list[str]:
    """The non-empty lines of a help text, such as a list of choices, without indentation."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def main() -> None:
    for path, text in rendered().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
