"""Shared checks for the parts of a sweep's file: folder names, settings with values, labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from stillhouse.config import nearest
from stillhouse.errors import InputError
from stillhouse.yaml_file import shown

Scalar = bool | int | float | str
Value = Scalar | list[Any] | dict[str, Any] | None
"""The value of a setting, as read from YAML."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
RESERVED = ("shared", "reference")


def refuse_unknown(content: Any, keys: Sequence[str], where: str) -> None:
    """Raises `InputError` if the content is not a mapping or has a key that is not in `keys`."""
    if not isinstance(content, dict):
        raise InputError(f"{where}: must be a mapping with the keys {', '.join(keys)}")
    for key in content:
        if key not in keys:
            raise InputError(f"{where}: unknown key {shown(key)}; {nearest(str(key), keys)}")


def refuse_names(names: Sequence[str], what: str, where: str) -> None:
    """Raises `InputError` for a name that is invalid as a folder, or duplicate."""
    for name in names:
        if not NAME.fullmatch(name) or name in RESERVED:
            raise InputError(
                f"{where}: a {what} cannot be called {shown(name)}; use letters, digits and . _ + -, but not {RESERVED}"
            )
        if [other.lower() for other in names].count(name.lower()) > 1:
            raise InputError(f"{where}: two {what}s are called {shown(name)}; give each a different name")


def refuse_equal_labels(titles: Sequence[str], what: str, where: str) -> None:
    """Raises `InputError` for a duplicate label."""
    for title in titles:
        if titles.count(title) > 1:
            raise InputError(f"{where}: two {what}s are labelled {shown(title)}; give each a different label")


def read_names(item: Any, where: str) -> str:
    """The name of a variant or condition. Checks that its name, label and retriever are text."""
    for key in ("name", "label", "retriever"):
        if not isinstance(item.get(key, None if key == "name" else ""), str):
            raise InputError(f"{where}: its {key} must be text, not {shown(item.get(key))}; put it in quotes")
    return str(item["name"])


def read_overrides(content: Any, where: str) -> dict[str, Value]:
    """{use.field: value}. Raises `InputError` for a malformed setting, for an invalid value, and for seeds."""
    if not isinstance(content, dict):
        raise InputError(f"{where}: overrides must map settings such as pretraining.objective to values")
    for key, value in content.items():
        if not isinstance(key, str) or not re.fullmatch(r"[a-z0-9_]+\.[a-z0-9_]+", key):
            raise InputError(
                f"{where}: {shown(key)} is not a setting; write STAGE.SETTING, for example pretraining.objective"
            )
        members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
        if not all(part is None or type(part) in (bool, int, float, str) for part in members):
            raise InputError(f"{where}: {key} must be a plain value, or a list of these, not {shown(value)}")
        if key.endswith(".seed"):
            raise InputError(f"{where}: {key} cannot be varied here; list the seeds under `seeds`")
    return dict(content)


def read_figures(content: Any, where: str) -> dict[str, float]:
    """{measure: number}, as a paper reports them."""
    if not isinstance(content, dict) or any(type(value) not in (int, float) for value in content.values()):
        raise InputError(f"{where}: published must map measures to numbers, not {shown(content)}")
    return {str(name): float(value) for name, value in content.items()}


def read_words(content: Any, message: str) -> dict[str, str]:
    """A mapping from text to text. Raises `InputError` with `message` for anything else."""
    if not isinstance(content, dict) or not all(isinstance(word, str) for pair in content.items() for word in pair):
        raise InputError(message)
    return dict(content)


def plain(value: Any) -> Any:
    """A field as plain data."""
    return dict(value) if isinstance(value, Mapping) else value
