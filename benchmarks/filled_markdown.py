"""Fills the paragraphs of Markdown to 100 characters per line and leaves everything else unchanged."""

from __future__ import annotations

import re
import textwrap

WIDTH = 100
VERBATIM = ("|", "#", "<", ">", "[", "-", "*", "+", "`", " ")
"""Tables, headings, HTML, quotes, link targets, lists and code."""
MARKER = re.compile(r"\s(?=([-+*#>]|\d+\.)\s)")
"""A space before a word that would begin a list or heading at the start of a line."""


def filled(text: str) -> str:
    """Fills every paragraph that has a line longer than `WIDTH`."""
    return "\n\n".join(map(_fill, text.split("\n\n")))


def _fill(block: str) -> str:
    if block.startswith(VERBATIM) or max(map(len, block.split("\n"))) <= WIDTH:
        return block
    words = MARKER.sub("\0", block)
    return textwrap.fill(words, WIDTH, break_long_words=False, break_on_hyphens=False).replace("\0", " ")
