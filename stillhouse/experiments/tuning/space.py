"""A search space: the settings of a recipe to search, one row each, from a YAML file.

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
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.config import check_value, field_types, refuse_unknown
from stillhouse.core.errors import InputError
from stillhouse.core.setting_kinds import kind_of, plain
from stillhouse.core.yaml_file import read_yaml, shown
from stillhouse.pipeline.graph import GraphStep, known_steps
from stillhouse.pipeline.recipes import SHIPPED, Recipe

if TYPE_CHECKING:
    import optuna

SPACES = SHIPPED / "spaces"
KEYS = ("retriever", "always", "settings")
SCALES = ("linear", "log")
DIGITS = 2
"""Significant digits of a drawn number: more are meaningless, and people read these numbers in params.yaml."""

Settings = dict[str, Any]
"""`section.setting` -> value."""


@dataclass(frozen=True)
class Row:
    """The values of one setting: `choices`, or numbers from `low` to `high`, inclusive."""

    choices: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    log: bool = False
    whole: bool = False

    def suggested(self, trial: optuna.Trial, key: str) -> Any:
        """The value that Optuna suggests, which knows no lists: choices are JSON."""
        if self.choices:
            return json.loads(trial.suggest_categorical(key, [json.dumps(choice) for choice in self.choices]))
        if self.whole:
            return trial.suggest_int(key, int(self.low), int(self.high), log=self.log)
        drawn = trial.suggest_float(key, self.low, self.high, log=self.log)
        return min(max(float(f"{drawn:.{DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Space:
    """The rows by `section.setting`, and the stage whose retriever a trial measures."""

    retriever: str
    rows: Mapping[str, Row]
    always: Settings = field(default_factory=dict)


def read_space(path: Path, recipe: Recipe) -> Space:
    """Read a space over a recipe. Raises `InputError`, with a remedy, for anything that cannot be searched."""
    content = read_yaml(path)
    if not isinstance(content, dict) or not isinstance(content.get("settings"), dict) or not content["settings"]:
        raise InputError(
            f"{path} must have `settings`, which map section.setting to a range or choices, for example "
            "`retriever_1.learning_rate: {min: 1.0e-5, max: 1.0e-4, scale: log}`"
        )
    for key in content:
        refuse_unknown(key, KEYS, f"{path}: unknown key")
    steps, settings, others = known_steps(recipe), content["settings"], content.get("always") or {}
    if not isinstance(others, dict):
        raise InputError(f"{path}: always must map section.setting to a value, not {shown(others)}")
    rows = {str(key): _row(row, *_setting(str(key), steps, f"{path}: {key}")) for key, row in settings.items()}
    always = {}
    for key, value in others.items():
        kind, rules, where = _setting(str(key), steps, f"{path}: {key}")
        always[str(key)] = plain(check_value(value, kind, rules, where))
    return Space(str(content.get("retriever", "retriever_1")), rows, always)


def _setting(key: str, steps: Mapping[str, GraphStep], where: str) -> tuple[Any, Mapping[str, Any], str]:
    """The type and the rules of a setting that trials may change."""
    section, _, name = key.partition(".")
    configs = {step.section: step.spec.config for step in steps.values()}
    refuse_unknown(section, configs, f"{where}: there is no section")
    rules = {one.name: one.metadata for one in dataclasses.fields(configs[section])}
    refuse_unknown(name, rules, f"{where}: section {section} has no setting")
    return field_types(configs[section])[name], rules[name], where


def _row(row: Any, kind: Any, rules: Mapping[str, Any], where: str) -> Row:
    known, example = kind_of(kind), "write {min: …, max: …}, with scale: log if you like, or {choices: […]}"
    if isinstance(row, dict) and row.keys() == {"choices"} and isinstance(row["choices"], list) and row["choices"]:
        return Row(tuple(plain(check_value(value, kind, rules, where)) for value in row["choices"]))
    if not isinstance(row, dict) or not {"min", "max"} <= row.keys() <= {"min", "max", "scale"}:
        raise InputError(f"{where} is {shown(row)}; {example}")
    if known.base not in (int, float) or known.shape != "one":
        raise InputError(f"{where} is not a number; list its values with {{choices: […]}}")
    low, high = (check_value(row[bound], known.base, rules, f"{where}.{bound}") for bound in ("min", "max"))
    scale = row.get("scale", "linear")
    refuse_unknown(scale, SCALES, f"{where}: scale")
    if low >= high or (scale == "log" and low <= 0):
        raise InputError(f"{where}: min must be below max, and above 0 with scale log; change them")
    return Row(low=low, high=high, log=scale == "log", whole=known.base is int)
