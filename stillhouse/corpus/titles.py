"""How a passage's title and text become the one text that every model and BM25 read (`titles` of `ingest`).

With `sep` a model reads both as its tokenizer's pair. Until a tokenizer cuts it, such a passage is one string with
`SEPARATOR` between title and text. Neither of them can hold that character: it becomes a space in both, so none but
this file sets a separator. What knows nothing of it, BM25 say, takes it for white space.
"""

from __future__ import annotations

SPACE = "space"
SEP = "sep"
LEFT_OUT = "left_out"
SEPARATOR = "\x1f"
"""The unit separator of ASCII, which is white space to Python."""
TITLES = {SPACE: " ", "colon": ": ", "line": "\n", SEP: SEPARATOR, LEFT_OUT: ""}
"""What stands between title and text, by the name of the setting; `left_out` leaves titles out."""


def read_title(title: str, titles: str) -> str:
    """What is read of a title: all of it with what stands behind it, or nothing.

    With `sep` the separator stands before every text, also where there is no title: all that follows it is known to
    be text.
    """
    if titles == SEP:
        return title.replace(SEPARATOR, " ") + SEPARATOR
    return f"{title}{TITLES[titles]}".replace(SEPARATOR, " ") if title and titles != LEFT_OUT else ""


def passage_text(title: str, text: str, titles: str = SPACE) -> str:
    """What a model or BM25 reads of a passage: its title, what joins them, its text; the text alone without a title."""
    return read_title(title, titles) + text.replace(SEPARATOR, " ")


def divided(text: str) -> tuple[str, str, bool]:
    """The title, the text, and whether a separator stands between them; without one all is text."""
    title, separator, rest = text.partition(SEPARATOR)
    return (title, rest, True) if separator else ("", text, False)


def joined_by_colon(text: str) -> str:
    """What `passage_text` gave with `sep`, as `colon` gives it; any other text unchanged."""
    title, rest, _ = divided(text)
    return passage_text(title, rest, "colon")
