"""How a passage's title and text become the one text that every model and BM25 read (`titles` of `ingest`).

With `sep`, a model reads both as its tokenizer's pair. Until a tokenizer splits it, such a passage is one string with
`SEPARATOR` between title and text. This character is replaced by a space in titles and texts, so only this module
inserts a separator. Code that does not know it, such as BM25, treats it as white space.
"""

SPACE = "space"
SEP = "sep"
LEFT_OUT = "left_out"
SEPARATOR = "\x1f"
"""ASCII's unit separator, which Python treats as white space."""
TITLES = {SPACE: " ", "colon": ": ", "line": "\n", SEP: SEPARATOR, LEFT_OUT: ""}
"""The text between title and text for each value of the setting; `left_out` leaves titles out."""


def read_title(title: str, titles: str) -> str:
    """The title as models read it, with the separator after it, or "".

    With `sep`, the separator precedes every text, even without a title, so that everything after it is known to be
    text.
    """
    if titles == SEP:
        return title.replace(SEPARATOR, " ") + SEPARATOR
    return f"{title}{TITLES[titles]}".replace(SEPARATOR, " ") if title and titles != LEFT_OUT else ""


def passage_text(title: str, text: str, titles: str = SPACE) -> str:
    """A passage as a model or BM25 reads it: its title, the separator and its text; only the text without a title."""
    return read_title(title, titles) + text.replace(SEPARATOR, " ")


def shown_title(title: str, section: str) -> str:
    """A passage's title and section for a person. In a file's passages, the title ends in the section."""
    return title if title.endswith(section) else " · ".join(filter(None, (title, section)))


def divided(text: str) -> tuple[str, str, bool]:
    """The title, the text, and whether a separator is between them; without one, everything is text."""
    title, separator, rest = text.partition(SEPARATOR)
    return (title, rest, True) if separator else ("", text, False)


def joined_by_colon(text: str) -> str:
    """Turns a result of `passage_text` with `sep` into its result with `colon`; leaves other texts unchanged."""
    title, rest, _ = divided(text)
    return passage_text(title, rest, "colon")
