"""Checks any reading of an article or a page, whatever its markup."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

MARKS = {
    b"\xff\xfe\x00\x00": "utf-32-le",
    b"\x00\x00\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}


def spaceless(text: str) -> str:
    """Return the text with its white space percent-encoded, as in a URL."""
    encoded = {c: "".join(f"%{byte:02X}" for byte in c.encode()) for c in set(text) if c.isspace()}
    return "".join(encoded.get(c, c) for c in text)


def _lines_of(data: bytes) -> list[str | None] | None:
    """Return the lines of a file, with None for a line that is not UTF-8; None if the file is not text."""
    for mark, encoding in MARKS.items():
        if data[: len(mark)] == mark:
            try:
                data = data[len(mark) :].decode(encoding).encode()
            except UnicodeError:
                return None
            break
    else:
        data = data[3:] if data[:3] == b"\xef\xbb\xbf" else data
    if 0 in data:
        return None
    lines: list[str | None] = []
    for raw in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        try:
            lines.append(raw.decode("utf-8"))
        except UnicodeDecodeError:
            lines.append(None)
    return lines


def page_fault(data: bytes, texts: Sequence[str]) -> str:
    """Return what is wrong with the passages of an HTML page or a Markdown file, or "".

    No passage may be empty. Their letters and digits must be in the page, in its order, and not repeated.
    """
    if not all(text.strip() for text in texts):
        return f"{texts} has an empty passage"
    lines = _lines_of(data)
    if lines is None or None in lines:
        return ""
    page = "\n".join(line or "" for line in lines)
    # An entity is plain text in some places, such as code.
    page = re.sub(r"&#?\w+;?", lambda found: found[0] + html.unescape(found[0]), page)
    letters = iter(re.sub("[^0-9A-Za-z]", "", page))
    logged = re.sub("[^0-9A-Za-z]", "", "".join(texts))
    return "" if all(letter in letters for letter in logged) else f"{texts} are not what the page says in its order"
