"""Front matter: YAML between two lines at the beginning of a Markdown file, of which the title is read."""

from __future__ import annotations

import re
from typing import NamedTuple

import yaml

MOST = 1 << 16
"""Characters of front matter; YAML takes a hundred times as many bytes to read."""
UNREAD = "front matter is not YAML"
NO_TEXT = "the title of the front matter is not text"

_FENCED = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"(?:\s|#.*)*[\w-]+[ \t]*:(?:\s|\Z)")
_NULL = "tag:yaml.org,2002:null"


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
    title = ""
    fault = UNREAD if _KEY.match(found[1]) else ""
    if len(found[1]) <= MOST:
        try:
            # The nodes alone are read and no values are made of them, so that no alias stands for more than itself.
            node = yaml.compose(found[1], Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (yaml.YAMLError, ValueError, RecursionError):
            pass
        else:
            if node is not None and not isinstance(node, yaml.MappingNode):
                return None
            title, fault = _title(node)
            return FrontMatter(found.end(), title, fault)
    return FrontMatter(found.end(), "", fault) if fault else None


def _title(node: yaml.MappingNode | None) -> tuple[str, str]:
    """The title and what is wrong with it; of two the last."""
    title = fault = ""
    for key, value in node.value if node is not None else ():
        if isinstance(key, yaml.ScalarNode) and key.value.lower() == "title":
            is_text = isinstance(value, yaml.ScalarNode)
            title = " ".join(value.value.split()) if is_text and value.tag != _NULL else ""
            fault = "" if is_text else NO_TEXT
    return title, fault
