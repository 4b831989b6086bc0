"""A search space: the settings of a recipe to search and their ranges, from one YAML file.

    retriever: retriever_1
    settings:
      retriever_1.learning_rate: {min: 1.0e-5, max: 1.0e-4, scale: log}
      retriever_1.epochs: {choices: [4.0, 8.0]}

    always:                             # optional: settings of every trial except the recipe's own
      retriever_1.eval_steps: 25

The step defines the type of a setting, and every bound and choice is checked as in params.yaml.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.config import check_value, field_types, nearest
from stillhouse.errors import InputError
from stillhouse.setting_kinds import kind_of, plain
from stillhouse.workflow.graph import Use, known_uses
from stillhouse.workflow.recipes import SHIPPED, Recipe, find_file
from stillhouse.yaml_file import read_yaml, shown

SPACES = SHIPPED / "spaces"
KEYS = ("retriever", "always", "settings")
SCALES = ("linear", "log")
DIGITS = 2
"""Significant digits of a drawn number: more are meaningless, and people read these numbers in params.yaml."""

Value = bool | int | float | str | list[Any] | dict[str, Any] | None
Settings = dict[str, Value]
"""`section.setting` -> value."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, inclusive; `log` samples them uniformly in their logarithm."""

    low: float
    high: float
    log: bool
    whole: bool

    def rounded(self, value: float) -> int | float:
        """Round a drawn number to a whole number or a few digits, within the bounds."""
        if self.whole:
            return min(max(round(value), int(self.low)), int(self.high))
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Choices:
    """A list of values of one kind."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Parameter:
    """A setting to search; `kind` is the type of its values: the scalar for a range, the field's type for choices."""

    section: str
    field: str
    kind: Any
    domain: Range | Choices

    @property
    def key(self) -> str:
        return f"{self.section}.{self.field}"


@dataclass(frozen=True)
class Space:
    """Parameters in the file's order, and the use whose retriever a trial measures.

    The settings in `always` apply to all trials except the one with the recipe's own settings.
    """

    retriever: str
    parameters: tuple[Parameter, ...]
    always: Mapping[str, Value] = dataclasses.field(default_factory=dict)

    @property
    def sections(self) -> set[str]:
        return {parameter.section for parameter in self.parameters} | {key.partition(".")[0] for key in self.always}

    def within(self, sections: set[str], retriever: str) -> Space:
        """The space restricted to these sections, for a retriever that depends only on them."""
        kept = tuple(parameter for parameter in self.parameters if parameter.section in sections)
        always = {key: value for key, value in self.always.items() if key.partition(".")[0] in sections}
        return Space(retriever, kept, always)


def find_space(name: str) -> Path:
    """The file of a space. A name without a suffix means a shipped one. Raises `InputError` if there is none."""
    return find_file(name, SPACES, "search space")


def read_space(path: Path, recipe: Recipe) -> Space:
    """Read a space over a recipe. Raises `InputError`, with a remedy, for anything that cannot be searched."""
    content = read_yaml(path)
    if not isinstance(content, dict) or not isinstance(content.get("settings"), dict) or not content["settings"]:
        raise InputError(
            f"{path} must have `settings`, which map section.setting to a range or choices, for example "
            "`retriever_1.learning_rate: {min: 1.0e-5, max: 1.0e-4, scale: log}`"
        )
    for key in content:
        if key not in KEYS:
            raise InputError(f"{path}: unknown key {shown(key)}; {nearest(str(key), KEYS)}")
    retriever = content.get("retriever", "retriever_1")
    if not isinstance(retriever, str):
        raise InputError(f"{path}: retriever must be the name of a stage, not {shown(retriever)}")
    always = content.get("always") or {}
    if not isinstance(always, dict):
        raise InputError(f"{path}: always must map section.setting to a value, not {shown(always)}")
    uses = known_uses(recipe)
    parameters = tuple(_parameter(key, domain, uses, str(path)) for key, domain in content["settings"].items())
    for key in {parameter.key for parameter in parameters} & set(always):
        raise InputError(f"{path}: {key} is in both settings and always; keep one of the two")
    checked = {str(key): _checked(key, value, uses, str(path)) for key, value in always.items()}
    return Space(retriever, parameters, checked)


def _field(key: object, uses: Mapping[str, Use], where: str) -> tuple[str, str, Any, Mapping[str, Any]]:
    """The section, name, kind and rules of a setting that trials may change."""
    section, _, field = str(key).partition(".")
    by_section = {use.section: use for use in uses.values()}
    if section not in by_section:
        raise InputError(f"{where}: there is no section {section!r}; {nearest(section, by_section)}")
    config = by_section[section].step.config
    rules = {one.name: one.metadata for one in dataclasses.fields(config)}
    if field not in rules:
        raise InputError(f"{where}: section {section} has no setting {field!r}; {nearest(field, rules)}")
    if rules[field].get("location"):
        raise InputError(f"{where} is a location, which cannot be searched; leave it out")
    return section, field, field_types(config)[field], rules[field]


def _checked(key: object, value: Any, uses: Mapping[str, Use], path: str) -> Value:
    where = f"{path}: {key}"
    _, _, kind, rules = _field(key, uses, where)
    checked: Value = plain(check_value(value, kind, rules, where))
    return checked


def _parameter(key: object, domain: object, uses: Mapping[str, Use], path: str) -> Parameter:
    where = f"{path}: {key}"
    section, field, kind, rules = _field(key, uses, where)
    if not isinstance(domain, dict):
        raise InputError(f"{where} must be {{min: …, max: …}} or {{choices: […]}}, not {shown(domain)}")
    if "choices" in domain:
        return Parameter(section, field, kind, _choices(domain, kind, rules, where))
    known = kind_of(kind)
    if known.base not in (int, float) or known.shape != "one":
        raise InputError(f"{where} is not a number: list its values with {{choices: […]}}")
    return Parameter(section, field, known.base, _range(domain, known.base, rules, where))


def _choices(domain: Mapping[str, Any], kind: Any, rules: Mapping[str, Any], where: str) -> Choices:
    _refuse_unknown(domain, ("choices",), where)
    if not isinstance(domain["choices"], list) or not domain["choices"]:
        raise InputError(f"{where}: choices must be a list of values, for example [4, 8]")
    values = tuple(plain(check_value(value, kind, rules, where)) for value in domain["choices"])
    if any(values.count(value) > 1 for value in values):
        raise InputError(f"{where}: choices contain a value twice; keep one of the two")
    return Choices(values)


def _range(domain: Mapping[str, Any], kind: type, rules: Mapping[str, Any], where: str) -> Range:
    _refuse_unknown(domain, ("min", "max", "scale"), where)
    for bound in ("min", "max"):
        if bound not in domain:
            raise InputError(f"{where} has no {bound}; write {{min: …, max: …}} or {{choices: […]}}")
    low, high = (check_value(domain[bound], kind, rules, f"{where}.{bound}") for bound in ("min", "max"))
    scale = domain.get("scale", "linear")
    if scale not in SCALES:
        raise InputError(f"{where}: scale {shown(scale)}; {nearest(str(scale), SCALES)}")
    if low >= high:
        raise InputError(f"{where}: min {low} must be below max {high}; swap them, or leave out the setting")
    if scale == "log" and low <= 0:
        raise InputError(f"{where}: scale log needs a min above 0, not {low}; raise it, or use scale linear")
    return Range(low, high, scale == "log", kind is int)


def _refuse_unknown(domain: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in domain:
        if key not in known:
            raise InputError(f"{where}: unknown key {shown(key)}; {nearest(str(key), known)}")
