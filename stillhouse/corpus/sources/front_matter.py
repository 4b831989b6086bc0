"""Front matter: YAML between two marker lines at the beginning of a Markdown file: its title and other keys."""

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


class _Texts(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """Reads numbers and dates as texts; only null has no text."""


_Texts.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Texts.add_constructor("tag:yaml.org,2002:null", lambda loader, node: None)


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
    """The last title, what is wrong with it, and the other keys; None if the content is not keys with values."""
    depth = 0
    for event in yaml.parse(content, Loader=_Texts):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:  # building thousands of nested values would crash the process
            raise yaml.YAMLError("nested too deeply")
    found = yaml.load(content, Loader=_Texts)  # noqa: S506  # it makes texts, lists and dictionaries alone
    if not isinstance(found or {}, dict):
        return None
    title: Any = None
    others: dict[str, str | list[str]] = {}
    for key, value in (found or {}).items():
        if isinstance(key, str) and key.lower() == "title":
            title = value
        elif isinstance(key, str) and isinstance(value, str):
            others[key] = value
        elif isinstance(key, str) and isinstance(value, list):
            others[key] = [item for item in value if isinstance(item, str)]
    if title is None or isinstance(title, str):
        return " ".join((title or "").split()), "", others
    return "", NO_TEXT, others
