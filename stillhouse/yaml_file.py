"""The one place that reads a user's YAML: returns plain data, or raises an error that names the line."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any

import yaml

from stillhouse.errors import InputError

MERGE_OR_VALUE = ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:value")
"""The tags of the keys `<<` and `=`, which have a special meaning and are not values."""

MOST_OF_ALIASES = 100_000
"""The most values and characters of values that aliases may add to the written ones."""


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
    plain data, and for a key that a mapping has twice. Anchors and merge keys (`<<: *anchor`) may add at most
    `MOST_OF_ALIASES`, since a few lines that each repeat the previous one ten times would expand without bounds.
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
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except _Twice as error:
        raise InputError(f"{where}, {_describe(error)}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{where} is not {kind}: {_describe(error)}") from None
    except RecursionError:
        raise InputError(f"{where} is not readable as {kind}: it is nested too deeply") from None


def _describe(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error).splitlines()[0]
    mark = error.problem_mark or error.context_mark
    return (f"line {mark.line + 1}: " if mark else "") + " ".join(str(error.problem or error.context).split())


class _Loader(yaml.SafeLoader):
    """A strict form of PyYAML's safe loader, which keeps the last of two equal keys and lets Python errors through."""

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            sizes: dict[int, tuple[int, int]] = {}
            added = _size(node, sizes) - sum(own for _, own in sizes.values())
            if added > MOST_OF_ALIASES:
                problem = "its aliases expand to too much data; write the values themselves"
                raise yaml.composer.ComposerError(problem=problem)
        return node

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

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int):
                str(value)  # fails for a number too long to show, which no error could name
            elif isinstance(value, str):
                value.encode()  # fails for half of a surrogate pair
        except (ValueError, ArithmeticError, LookupError, AttributeError, TypeError):
            if not isinstance(node, yaml.ScalarNode):
                raise
            begun = node.value if len(node.value) <= 40 else node.value[:40] + "…"
            problem = f"{begun!r} is not a readable {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark) from None
        return value


def _size(node: yaml.Node, sizes: dict[int, tuple[int, int]]) -> int:
    """The number of values and characters in a node with its aliases expanded. `sizes` caches for every node this
    number and the node's own share of it. Raises `ComposerError` for a node that contains itself.
    """
    if id(node) not in sizes:
        own = 1 + len(node.value) if isinstance(node, yaml.ScalarNode) else 1
        sizes[id(node)] = -1, own
        parts = [] if isinstance(node, yaml.ScalarNode) else node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in parts for part in pair]
        sizes[id(node)] = own + sum(_size(part, sizes) for part in parts), own
    whole = sizes[id(node)][0]
    if whole < 0:
        problem = "an alias refers to a value that contains it; write the values themselves"
        raise yaml.composer.ComposerError(problem=problem, problem_mark=node.start_mark)
    return whole
