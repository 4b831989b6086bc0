"""How a passage's title and text become the one text that every model and BM25 read (`titles` of `ingest`)."""

from __future__ import annotations

SPACE = "space"
LEFT_OUT = "left_out"
TITLES = {SPACE: " ", "colon": ": ", "line": "\n", LEFT_OUT: ""}
"""What stands between title and text, by the name of the setting; `left_out` leaves titles out."""


def read_title(title: str, titles: str) -> str:
    """What is read of a title: all of it with what stands behind it, or nothing."""
    return f"{title}{TITLES[titles]}" if title and titles != LEFT_OUT else ""


def passage_text(title: str, text: str, titles: str = SPACE) -> str:
    """What a model or BM25 reads of a passage: its title, what joins them, its text; the text alone without a title."""
    return read_title(title, titles) + text
