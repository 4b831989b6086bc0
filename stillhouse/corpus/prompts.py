"""The prompts for a model: built-in ones for several kinds of texts, and a user's own examples."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stillhouse.core.errors import InputError

_PLACES = re.compile(r"\{(title|text|number)\}")
_NO_TITLE = re.compile(r"\{title\}[\s:.,-]*")
KINDS: Mapping[str, tuple[str, str]] = {
    "questions": (
        "questions that somebody may type into a search engine and that this passage answers",
        "question that this passage answers",
    ),
    "claims": ("claims that this passage proves or disproves", "claim that this passage proves"),
    "keywords": (
        "searches of two to five keywords, without a verb, that this passage answers",
        "search of two to five keywords that this passage answers",
    ),
    "titles": ("titles that an article with this passage may have", "title for an article with this passage"),
}
"""The kinds of texts: the request to a chat server, for several at once, and to a local model, for one at a time."""
MOST_EXAMPLES = 8
NAMES = {"title": ("title",), "text": ("passage", "text"), "query": ("question", "query")}
"""The keys of an example, any one of each."""


class Example(NamedTuple):
    """A passage of the user's own with a question that it answers."""

    title: str
    text: str
    query: str


def prompt_for_several(kind: str) -> str:
    """The prompt of a chat server, with {title}, {text} and {number}."""
    noun = kind[:-1] if kind != "keywords" else "search"
    marked = "" if kind == "questions" else ", after a hyphen,"  # a line without a mark or "?" is not taken for one
    return (
        f"Below is a passage. Write {{number}} {KINDS[kind][0]}.\n"
        f"Each {noun} must be in the language of the passage and understandable without it, and must not copy its "
        f"sentences. Write one {noun} on each line{marked} and nothing else.\n\n{{title}}\n\n{{text}}"
    )


def prompt_for_one(kind: str) -> str:
    """The prompt of a local model, with {title} and {text}."""
    return f"Write one {KINDS[kind][1]}.\n\n{{title}}\n{{text}}"


def filled(prompt: str, title: str, text: str, number: int = 1) -> str:
    """A prompt with its places filled; braces in the passage stay unchanged."""
    values = {"title": title, "text": text, "number": str(number)}
    return _PLACES.sub(lambda place: values[place[1]], prompt)


def filled_whole(prompt: str, title: str, text: str, number: int = 1) -> str:
    """As `filled`, without the white space and marks after a title that is empty."""
    return filled(prompt if title else _NO_TITLE.sub("", prompt), title, text, number)


def chat(said: Iterable[tuple[str, str]], asked: str) -> list[dict[str, str]]:
    """The messages of a chat: what was asked before with its answers, then what is asked now."""
    turns = [{"role": role, "content": content} for pair in said for role, content in zip(("user", "assistant"), pair)]
    return [*turns, {"role": "user", "content": asked}]


def read_examples(path: Path) -> tuple[Example, ...]:
    """The examples in a file of JSON lines. Raises `InputError` for another file, and for none or too many."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
        examples = tuple(_example(json.loads(line)) for line in lines if line.strip())
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        raise InputError(
            f'examples: {path} must have lines such as {{"passage": "Mice …", "question": "What do mice eat?"}}'
        ) from None
    if not 1 <= len(examples) <= MOST_EXAMPLES:
        raise InputError(f"examples: {path} has {len(examples)}; give three to {MOST_EXAMPLES}, each with its passage")
    return examples


def _example(row: Mapping[str, Any]) -> Example:
    found = {name: next((row[key] or "" for key in keys if key in row), "") for name, keys in NAMES.items()}
    stripped = {name: text.strip() for name, text in found.items()}  # which only text has
    if not stripped["text"] or not stripped["query"]:
        raise LookupError
    return Example(**found)
