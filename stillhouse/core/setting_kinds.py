"""The types that a setting may have: a scalar, a scalar or null, a list of scalars, or a mapping of texts.

A field's annotation gives its type: `int`, `int | None`, `tuple[float, ...]`, `tuple[int, ...] | None` or
`Mapping[str, str] | None`. YAML and JSON have their own null, lists and mappings. On a command line, null is `null`,
and lists and mappings use commas: `0.5,0.75`, `dev=test,train=dev`. JSON works too, for texts that contain commas.
"""

import json
import math
import types
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin

from stillhouse.core.errors import InputError
from stillhouse.core.yaml_file import shown

SCALARS = (bool, int, float, str)
NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
NULL = "null"


@dataclass(frozen=True)
class Kind:
    """The type of a value: `base` is the type of the scalar, or of each member of a list or mapping."""

    base: type
    shape: str = "one"
    optional: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is a scalar that is never null, which every form and YAML read the same way."""
        return self.shape == "one" and not self.optional

    @property
    def shown(self) -> str:
        """What a value must be, in words."""
        words = {"one": NAMES[self.base], "list": f"a list, each {NAMES[self.base]}", "mapping": "a mapping of texts"}
        return words[self.shape] + (" or null" if self.optional else "")

    @property
    def annotation(self) -> str:
        """The type as Kubeflow components and Python functions declare it."""
        name = {"one": self.base.__name__, "list": "list", "mapping": "dict"}[self.shape]
        return f"Optional[{name}]" if self.optional else name


@cache
def kind_of(hint: Any) -> Kind:
    """The kind of a field's annotation. Raises `AssertionError` for a type that no setting may have."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    optional = type(None) in parts
    [kept] = [part for part in parts if part is not type(None)]
    if get_origin(kept) is tuple:
        base, rest = get_args(kept)
        assert rest is Ellipsis and base in SCALARS, hint
        return Kind(base, "list", optional)
    if get_origin(kept) is Mapping:
        assert get_args(kept) == (str, str), hint
        return Kind(str, "mapping", optional)
    assert kept in SCALARS, f"a setting must be a scalar, or a list or a mapping of them, not {hint}"
    return Kind(kept, "one", optional)


def check_type(value: Any, hint: Any, where: str) -> Any:
    """The value as a settings dataclass holds it. Raises `InputError` if its type is wrong or it is not finite."""
    kind = kind_of(hint)
    if value is None and kind.optional:
        return None
    if kind.shape == "one":
        return _scalar(value, kind.base, kind.shown, where)
    if kind.shape == "list" and isinstance(value, (list, tuple)):
        return tuple(_scalar(part, kind.base, NAMES[kind.base], f"{where}[{n}]") for n, part in enumerate(value))
    if kind.shape == "mapping" and isinstance(value, Mapping):
        return {_scalar(k, str, "text", where): _scalar(v, str, "text", f"{where}.{k}") for k, v in value.items()}
    raise InputError(f"{where} must be {kind.shown}, not {shown(value)}")


def _scalar(value: Any, base: type, words: str, where: str) -> Any:
    if base is float and isinstance(value, (int, str)) and not isinstance(value, bool):
        # YAML reads 2e-5 as a string because it lacks a dot.
        try:
            value = float(value)
        except ValueError:
            raise InputError(f"{where} must be {words}, not {shown(value)}") from None
        except OverflowError:
            raise InputError(f"{where} is larger than any number that a float can hold; give a smaller one") from None
    if type(value) is not base:
        raise InputError(f"{where} must be {words}, not {shown(value)}")
    refuse_not_finite(value, where)
    return value


def from_text(text: str, hint: Any, where: str) -> Any:
    """The value of a command-line flag: parses the text as the type `hint`."""
    kind = kind_of(hint)
    if kind.optional and text.strip() == NULL:
        return None
    if kind.shape == "one":
        return _read(text, kind.base, kind.shown, where)
    if text.strip()[:1] in ("[", "{"):
        try:
            given = json.loads(text)
        except ValueError as error:
            raise InputError(f"{where} is not valid JSON: {error}") from None
        return check_type(given, hint, where)
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if kind.shape == "list":
        words = f"{NAMES[kind.base]}, or several separated by commas"
        return tuple(_read(part, kind.base, words, where) for part in parts)
    pairs = [part.partition("=") for part in parts]
    if not all(key and equals and value for key, equals, value in pairs):
        raise InputError(f"{where} must be NAME=VALUE pairs separated by commas, not {shown(text)}")
    return {key.strip(): value.strip() for key, _, value in pairs}


def from_form(value: Any, hint: Any, where: str) -> Any:
    """The value of a run form's field. Lists and values that may be null are text there; an empty field is null."""
    kind = kind_of(hint)
    if kind.plain or not isinstance(value, str):
        return value
    return None if kind.optional and not value.strip() else from_text(value, hint, where)


def as_form(value: Any, hint: Any) -> Any:
    """The default of a run form's field; `from_form` reads it back."""
    return value if kind_of(hint).plain else "" if value is None else as_text(value)


def form_type(hint: Any) -> type:
    """The type of a run form's field for a setting of this type."""
    kind = kind_of(hint)
    return kind.base if kind.plain else str


def as_text(value: Any) -> str:
    """The value of a command-line flag; `from_text` reads it back."""
    if isinstance(value, str):
        return value
    return json.dumps(plain(value), ensure_ascii=False)


def as_flag(value: Any) -> str:
    """`as_text` as a person would write it: the members of a list separated by commas."""
    if isinstance(value, (list, tuple)):
        return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in value)
    return as_text(value)


def plain(value: Any) -> Any:
    """A value as YAML and JSON represent it: a list for a tuple."""
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _read(text: str, base: type, words: str, where: str) -> Any:
    value: Any = text
    if base is bool:
        value = {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    elif base is int:
        with suppress(ValueError):
            value = int(text)
    return _scalar(value, base, words, where)


def refuse_not_finite(value: Any, where: str) -> None:
    """Raises `InputError` for infinity and for NaN, which would otherwise pass every range check."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} must be a finite number, not {value}")
