"""Fills the paragraphs and list items of Markdown to 100 characters per line and leaves everything else unchanged."""

from __future__ import annotations

import re
import textwrap

WIDTH = 100
ITEM = re.compile(r"(\s*)([-*+]|\d+\.)(\s+)")
VERBATIM = re.compile(r"\s*(\||#|<|>|\[[^\]]+\]:)|    |\t")
"""Tables, headings, HTML, quotes, link targets and indented code."""
MARKER = re.compile(r" (?=([-+*#>]|\d+\.) )")
"""A space before a word that would begin a list or heading at the start of a line."""


def filled(text: str) -> str:
    """Fills every paragraph and list item that has a line longer than `WIDTH`."""
    made: list[str] = []
    block: list[str] = []
    fenced = False
    for line in [*text.split("\n"), None]:
        fence = line is not None and line.lstrip().startswith("```")
        inside = bool(block) and line is not None and line.startswith(" ")  # continues a list item
        plain = line is not None and line.strip() and not fence and not fenced
        plain = plain and (inside or not VERBATIM.match(line or ""))
        if block and (not plain or ITEM.match(line or "")):
            made += _fill(block)
            block = []
        fenced ^= fence
        if plain:
            block.append(line or "")
        elif line is not None:
            made.append(line)
    return "\n".join(made)


def _fill(block: list[str]) -> list[str]:
    if max(map(len, block)) <= WIDTH or any(line.endswith("  ") for line in block):
        return block
    item = ITEM.match(block[0])
    first = item[0] if item else re.match(r"\s*", block[0])[0]  # type: ignore[index]
    words = MARKER.sub("\0", " ".join(line.strip() for line in block)[len(first.strip()) :].strip())
    later = " " * len(first)
    made = textwrap.wrap(
        words, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in made]
