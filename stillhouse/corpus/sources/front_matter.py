"""Front matter: YAML between two marker lines at the beginning of a Markdown file: its title and other keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

MOST = 1 << 16
"""The most characters of front matter; parsing YAML takes about 100 bytes of memory per character."""
DEEPEST = 100
"""The deepest nesting of lists and keys; thousands of levels take hours."""
UNREAD = "front matter is not YAML"
NO_TEXT = "the title of the front matter is not text"

_FENCED = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"(?:\s|#.*+)*+[\w-]+[ \t]*:(?:\s|\Z)")
_NULL = ("", "~", "null", "Null", "NULL")


class FrontMatter(NamedTuple):
    """Its length in characters with both marker lines, its title ("" without one), and what is wrong with it.

    `others` are the other keys of which the value is a text or a list of texts; numbers and dates are as they stand.
    """

    length: int
    title: str
    fault: str
    others: Mapping[str, str | list[str]] = MappingProxyType({})


def front_matter(text: str) -> FrontMatter | None:
    """The front matter at the beginning of a text, or None.

    It opens with `---` and closes with `---` or `...`. The content must be keys with values, or empty, since two
    thematic breaks around a paragraph look similar. Content that begins with a key but is not YAML is front matter with
    a fault.
    """
    found = _FENCED.match(text)
    if found is None:
        return None
    begins_with_key = bool(_KEY.match(found[1]))
    if len(found[1]) > MOST:
        return FrontMatter(found.end(), "", UNREAD) if begins_with_key else None
    try:
        read = _read(found[1])
    except yaml.YAMLError:
        read = ("", UNREAD, {}) if begins_with_key else None
    return FrontMatter(found.end(), *read) if read else None


def _read(content: str) -> tuple[str, str, dict[str, str | list[str]]] | None:
    """The last title, what is wrong with it, and the other keys; None if the content is not keys with values.

    Reads event by event: YAML nodes are built by recursion, so thousands of nested ones would crash the process, and an
    alias may expand to millions.
    """
    title = fault = key = ""
    others: dict[str, Any] = {}
    depth = documents = 0
    is_key = True
    for event in yaml.parse(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1 or depth > DEEPEST:
            raise yaml.YAMLError("several documents, or one that takes the square of its length to read")
        if isinstance(event, yaml.NodeEvent) and depth == 0 and not isinstance(event, yaml.MappingStartEvent):
            return None
        if isinstance(event, yaml.NodeEvent) and depth == 1:
            value = event.value if isinstance(event, yaml.ScalarEvent) else None
            is_null = value in _NULL and not getattr(event, "style", "")
            if is_key:
                key = value or ""
            elif key.lower() != "title":
                others.pop(key, None)
                if isinstance(event, yaml.SequenceStartEvent):
                    others[key] = []
                elif value is not None and not is_null:
                    others[key] = value
            else:
                title, fault = "" if is_null else " ".join((value or "").split()), NO_TEXT if value is None else ""
            is_key = not is_key
        elif isinstance(event, yaml.ScalarEvent) and depth == 2 and isinstance(others.get(key), list):
            others[key].append(event.value)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
    return title, fault, others
