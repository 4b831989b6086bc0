"""Settings: small dataclasses that YAML files, command-line flags and Kubeflow parameters all fill.

A step's settings are a keyword-only dataclass whose fields are `bool`, `int`, `float` or `str` and carry a help text:

    @dataclass(frozen=True, kw_only=True)
    class Config:
        depth: int = setting(200, "how many passages BM25 returns for a query", minimum=1)
        pooling: str = setting("cls", "how token states become one vector", choices=("cls", "mean"))

Cross-field rules go into `__post_init__` and raise `InputError`. A recipe (`params.yaml`) maps the name of a use of a
step to the fields it changes; everything it leaves out keeps the dataclass default.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from stillhouse.errors import InputError
from stillhouse.former_names import present_name
from stillhouse.yaml_file import read_yaml, shown

C = TypeVar("C")
SCALARS = (bool, int, float, str)


def setting(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    location: bool = False,
    required: bool = False,
) -> Any:
    """One field of a settings dataclass.

    `location` marks a path: it says where something lies and not what it is, so manifests leave it out and record
    the digest of what was found there instead. `required` marks one whose default does not do, as a form shows it.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "location": location,
        "required": required,
    }
    return dataclasses.field(default=default, metadata=metadata)


def field_types(cls: type) -> dict[str, type]:
    """The name and scalar type of every field of a settings dataclass, in order."""
    hints = _hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


@cache
def _hints(cls: type) -> dict[str, Any]:
    """A class's annotations, which are evaluated anew at every look otherwise."""
    return get_type_hints(cls)


def nearest(word: str, words: Iterable[str]) -> str:
    """A hint: the present name of a former one, else the closest valid word, or all of them when none is close."""
    words = list(words)
    if present := present_name(word, words):
        return f"it is now called {present!r}"
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"valid: {', '.join(sorted(words))}"


def build(cls: type[C], values: Mapping[str, Any], where: str) -> C:
    """Fills a settings dataclass from a mapping.

    `where` names the place for error messages, for instance `params.yaml: retriever_1`.
    Raises `InputError` for an unknown key, a value of the wrong type, or one outside its choices or range.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    types = field_types(cls)
    checked = {}
    for key, value in values.items():
        if key not in fields:
            raise InputError(f"{where}: unknown setting {shown(key)}; {nearest(str(key), fields)}")
        checked[key] = check_value(value, types[key], fields[key].metadata, f"{where}.{key}")
    try:
        return cls(**checked)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def check_value(value: Any, kind: type, rules: Mapping[str, Any], where: str) -> Any:
    """One value against its field's type, choices and range; `rules` is the field's metadata."""
    assert kind in SCALARS, f"{where}: a setting must be bool, int, float or str, not {kind}"
    if kind is float and isinstance(value, (int, str)) and not isinstance(value, bool):
        # YAML reads 2e-5 as a string because it lacks a dot.
        try:
            value = float(value)
        except ValueError:
            raise InputError(f"{where} must be a number, not {shown(value)}") from None
        except OverflowError:
            raise InputError(
                f"{where} is larger than any number that can be computed with; give a smaller one"
            ) from None
    if type(value) is not kind:
        names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        raise InputError(f"{where} must be {names[kind]}, not {shown(value)}")
    _refuse_not_finite(value, where)
    if rules.get("choices") and value not in rules["choices"]:
        raise InputError(f"{where} is {shown(value)}; {nearest(str(value), rules['choices'])}")
    low, high = rules.get("minimum"), rules.get("maximum")
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"at most {high}" if low is None else f"from {low} to {high}"
        raise InputError(f"{where} must be {bounds}, not {value}")
    return value


def from_text(text: str, kind: type, where: str) -> Any:
    """The value of a command-line flag: text read as `kind`."""
    if kind is str:
        return text
    if kind is bool:
        words = {"true": True, "yes": True, "false": False, "no": False}
        if text.lower() not in words:
            raise InputError(f"{where} must be true or false, not {shown(text)}")
        return words[text.lower()]
    try:
        value = kind(text)
    except ValueError:
        names = {int: "a whole number", float: "a number"}
        raise InputError(f"{where} must be {names[kind]}, not {shown(text)}") from None
    _refuse_not_finite(value, where)
    return value


def _refuse_not_finite(value: Any, where: str) -> None:
    """NaN is neither below a minimum nor above a maximum, and so would pass every range."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} must be a finite number, not {value}")


def recorded(config: Any) -> dict[str, Any]:
    """The settings as a manifest records them: all fields but locations."""
    return {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if not field.metadata.get("location")
    }


def read_recipe(path: Path, sections: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """Reads a recipe: one mapping a section. Raises `InputError` for broken YAML and for other than these `sections`.

    Without `sections` any will do.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist; `stillhouse new FOLDER` makes a folder that has one")
    content = read_yaml(path)
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise InputError(f"{path} must map each section to its settings")
    if sections is not None:
        refuse_unknown_sections(content, sections, str(path))
    for name, values in content.items():
        if values is not None and not isinstance(values, dict):
            raise InputError(f"{path}: section {shown(name)} must map settings to values, not {shown(values)}")
    return {name: dict(values or {}) for name, values in content.items()}


def refuse_unknown_sections(recipe: Mapping[Any, Any], sections: Iterable[str], where: str) -> None:
    """Raises `InputError` for a section of a recipe that is not among `sections`."""
    sections = list(sections)
    for name in recipe:
        if name not in sections:
            raise InputError(f"{where}: unknown section {shown(name)}; {nearest(str(name), sections)}")
