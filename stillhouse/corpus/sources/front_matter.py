"""Front matter: YAML between two lines at the beginning of a Markdown file, of which the title is read."""

from __future__ import annotations

import re
from typing import NamedTuple

import yaml

MOST = 1 << 16
"""Characters of front matter; YAML takes a hundred times as many bytes to read."""
DEEPEST = 100
"""Lists and keys within one another; thousands take hours."""
UNREAD = "front matter is not YAML"
NO_TEXT = "the title of the front matter is not text"

_FENCED = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"(?:\s|#.*+)*+[\w-]+[ \t]*:(?:\s|\Z)")
_NULL = ("", "~", "null", "Null", "NULL")


class FrontMatter(NamedTuple):
    """How many characters it is long with both of its lines, its title ("" without one), and what is wrong with it."""

    length: int
    title: str
    fault: str


def front_matter(text: str) -> FrontMatter | None:
    """The front matter that a text begins with; None for a text without.

    It opens with `---` and closes with `---` or `...`. What is between must be keys with values, or nothing: two
    thematic breaks may stand around a paragraph as well. What begins with a key and is no YAML is front matter with a
    fault.
    """
    found = _FENCED.match(text)
    if found is None:
        return None
    begins_with_key = bool(_KEY.match(found[1]))
    if len(found[1]) > MOST:
        return FrontMatter(found.end(), "", UNREAD) if begins_with_key else None
    try:
        read = _title(found[1])
    except yaml.YAMLError:
        read = ("", UNREAD) if begins_with_key else None
    return FrontMatter(found.end(), *read) if read else None


def _title(content: str) -> tuple[str, str] | None:
    """The title and what is wrong with it, of two the last; None for what is not keys with values.

    Events are read one by one: the nodes of YAML, which are read by recursion, would end the process where thousands
    lie in each other, and an alias may stand for millions.
    """
    title = fault = key = ""
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
            if is_key:
                key = (value or "").lower()
            elif key == "title":
                is_null = value in _NULL and not getattr(event, "style", "")
                title, fault = "" if is_null else " ".join((value or "").split()), NO_TEXT if value is None else ""
            is_key = not is_key
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
    return title, fault
