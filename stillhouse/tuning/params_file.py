"""Edits settings in the text of params.yaml and leaves everything else unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from stillhouse.errors import InputError
from stillhouse.experiments.comparison.plan import merged
from stillhouse.setting_kinds import plain
from stillhouse.tuning.space import Settings
from stillhouse.workflow.graph import STAGES, known_uses
from stillhouse.workflow.recipes import Recipe
from stillhouse.yaml_file import parse_yaml

UNKNOWN: Any = object()


def with_settings(text: str, settings: Settings, where: str) -> tuple[str, Settings]:
    """A recipe's text with `section.setting` values inserted, and all inserted values; nothing else changes meaning.

    A section that would inherit a changed value through a merge key gets its old value as an explicit line. Raises
    `InputError` for a file that cannot be edited this way.
    """
    wanted = merged(_recipe(text, where), settings)
    edits = dict(settings)
    for key, value in settings.items():
        section, _, field = key.partition(".")
        text = _put(text, section, field, value)
    for section, values in _recipe(text, where).items():
        for field, value in values.items():
            before = wanted.get(section, {}).get(field, _default(wanted, section, field))
            if value != before and before is not UNKNOWN:
                edits[f"{section}.{field}"] = before
                text = _put(text, section, field, before)
    if _recipe(text, where) != merged(wanted, edits):
        lines = ", ".join(f"{key}: {_written(value)}" for key, value in settings.items())
        raise InputError(f"{where} cannot be edited automatically; set {lines} by hand")
    return text, edits


def _default(recipe: Recipe, section: str, field: str) -> Any:
    """The value of a setting that its section leaves out; `UNKNOWN` if no use has this section."""
    if section == STAGES:
        return UNKNOWN
    configs = (use.step.config for use in known_uses(recipe).values() if use.section == section)
    return next((plain(getattr(config(), field, UNKNOWN)) for config in configs), UNKNOWN)


def _recipe(text: str, where: str) -> Recipe:
    content = parse_yaml(text, where) or {}
    return {name: dict(values or {}) for name, values in content.items()}


def _put(text: str, section: str, field: str, value: Any) -> str:
    """The text with one value replaced, or inserted as the first line of its section."""
    top = yaml.compose(text, Loader=yaml.SafeLoader)
    written = _written(value)
    node = _child(top, section)
    if node is None:
        return f"{text.rstrip()}\n{section}:\n  {field}: {written}\n".lstrip()
    if isinstance(node, yaml.MappingNode):
        found = _child(node, field)
        if found is not None:
            return text[: found.start_mark.index] + written + text[found.end_mark.index :]
        if node.flow_style:
            place = text.index("{", node.start_mark.index) + 1
            comma = ", " if node.value else ""
            return f"{text[:place]}{field}: {written}{comma}{text[place:]}"
        first = node.value[0][0].start_mark
        return f"{text[: first.index]}{field}: {written}\n{' ' * first.column}{text[first.index :]}"
    return text  # an alias of a whole section, or an empty one: the caller's comparison refuses it


def _child(node: yaml.Node | None, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)


def _written(value: Any) -> str:
    """A value in this project's notation: floats have a dot, so that YAML reads them as numbers."""
    if isinstance(value, float):
        text = repr(value)
        mantissa, e, power = text.partition("e")
        return (mantissa if "." in mantissa else f"{mantissa}.0") + (f"e{int(power)}" if e else "")
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip()


def as_lines(settings: Mapping[str, Any]) -> list[str]:
    """Settings as lines of a recipe, section by section."""
    lines: list[str] = []
    for section in dict.fromkeys(key.split(".")[0] for key in settings):
        lines.append(f"{section}:")
        lines += [
            f"  {key.split('.')[1]}: {_written(value)}"
            for key, value in settings.items()
            if key.startswith(f"{section}.")
        ]
    return lines
