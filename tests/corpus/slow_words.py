"""Reads the words of Markdown paragraphs slowly, by a strict grammar of markup that all parsers understand alike."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

LETTERS = "[A-Za-z0-9\u00e0-\u00f6]"
WORDS = rf"{LETTERS}+(?: {LETTERS}+)*"
TARGET = r"[\w:./%#?-]+"


class Unclear(Exception):
    """Parsers may read this file differently."""


def _between(mark: str) -> str:
    """Return a pattern for words between two marks of emphasis that touch no other letter or mark."""
    return rf"(?<![\w*~]){mark}({WORDS})(?={mark}){mark}(?![\w*~])"


PARTS = {
    "end of line": r"((?: *|\\)\n *)(?!\Z)",
    "letter": rf"({LETTERS}|[ .,;:?%/$@{{}}()\"'=+#-])",
    "escaped": r"\\([!-/:-@\[-`{-~])",
    "entity": r"(&(?:amp|lt|gt|quot|nbsp|mdash|#[1-9][0-9]{2});)",
    "code": r"(?<!`)`([A-Za-z0-9.*&<-]+(?: [A-Za-z0-9.*&<-]+)*)`(?!`)",
    "strong": _between(r"\*\*"),
    "emphasis": _between(r"\*"),
    "strong, too": _between("__"),
    "emphasis, too": _between("_"),
    "struck": _between("~~"),
    "link": rf"!?\[({WORDS})\]\((?:({TARGET})|<([\w:./ %#?-]+)>)?(?: \"{WORDS}\")?\)",
    "reference": rf"!?\[({WORDS})\]\[([A-Za-z0-9]+)\]",
    "note": r"\[\^([A-Za-z0-9]+)\]",
    "address": r"<(https?://[a-z./]+)>",
    "comment": r"(<!-- [a-z ]* -->)",
    "break": r"(<br>)",
    "tag": r"(</?(?:b|i|em|span)>)",
}
"""The patterns to try at a position, in this order. Group 1 is the text, except where it is left out."""
PATTERNS = {name: re.compile(pattern) for name, pattern in PARTS.items()}


def words_of(text: str, definitions: Mapping[str, str], notes: set[str]) -> tuple[str, list[str]]:
    """Return the words of a text and its link targets; `definitions` maps labels to targets. Raises `Unclear`."""
    said, targets, at, has_tag = "", list[str](), 0, False
    while at < len(text):
        name, found = next(
            ((name, found) for name, pattern in PATTERNS.items() if (found := pattern.match(text, at))), ("", None)
        )
        if found is None:
            raise Unclear
        at, words = found.end(), found[1]
        if name == "link":
            targets.append(found[2] or found[3] or "")
        elif name == "reference":
            if found[2].lower() not in definitions:
                raise Unclear
            targets.append(definitions[found[2].lower()])
        elif name == "note" and words not in notes:
            raise Unclear
        elif name == "entity":
            words = html.unescape(words)
        has_tag = has_tag or name in ("comment", "break", "tag")
        said += " " if name in ("break", "end of line") else "" if name in ("note", "comment", "tag") else words
    return (re.sub(" +", " ", said) if has_tag else said).strip(), targets
