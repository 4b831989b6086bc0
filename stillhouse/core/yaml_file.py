"""The one place that reads a user's YAML: returns plain data, or raises an error that names the line."""

import reprlib
from pathlib import Path
from typing import Any

import yaml

from stillhouse.core.errors import InputError

MERGE_OR_VALUE = ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:value")
"""The tags of the keys `<<` and `=`, which have a special meaning and are not values."""
NOT_AS_TAGGED = (ValueError, LookupError, ArithmeticError, AttributeError)
"""PyYAML's errors for a value that is not what its tag says."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 200
_short.maxlist = _short.maxdict = 20
_short.maxlevel = 3


def shown(value: object) -> str:
    """A value for a message, shortened if it is long."""
    return _short.repr(value)


class _Twice(yaml.MarkedYAMLError):
    """A key that appears twice in one mapping."""


def read_yaml(path: Path) -> Any:
    """The content of a YAML file, or None if it is empty.

    Raises `FileNotFoundError`, and `InputError` for a file that cannot be read, for invalid YAML, for anything but
    plain data, and for a key that a mapping has twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a YAML file in UTF-8: {error.reason} at byte {error.start}") from None
    return parse_yaml(text, str(path), "a YAML file in UTF-8")


def parse_yaml(text: str, where: str, kind: str = "YAML") -> Any:
    """Parses a text as YAML; `where` names it in messages. Raises `InputError` as `read_yaml` does."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - it is a safe loader
    except _Twice as error:
        raise InputError(f"{where}, {_describe(error)}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{where} is not {kind}: {_describe(error)}") from None
    except NOT_AS_TAGGED as error:
        raise InputError(f"{where} is not {kind}: {error}") from None
    except RecursionError:
        raise InputError(f"{where} is not readable as {kind}: it is nested too deeply") from None


def _describe(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error).splitlines()[0]
    mark = error.problem_mark or error.context_mark
    return (f"line {mark.line + 1}: " if mark else "") + " ".join(str(error.problem or error.context).split())


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which would keep the last of two equal keys."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[Any, int] = {}
        for key, _ in node.value:  # as written: merge keys are resolved later
            if not isinstance(key, yaml.ScalarNode):
                continue
            name = key.value if key.tag in MERGE_OR_VALUE else self.construct_object(key)
            line = key.start_mark.line + 1
            if name in lines:
                problem = f"{shown(name)} is already in line {lines[name]}; keep one of the two"
                raise _Twice(problem=problem, problem_mark=key.start_mark)
            lines[name] = line
        return node
