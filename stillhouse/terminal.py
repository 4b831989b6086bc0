"""What a person sees on a terminal or in a log: text of others is shown as text, and moves, colours and forges nothing.

A title of a corpus, a file's name or a setting may hold control characters, by which a terminal is driven; line breaks,
which would begin a line that looks like one of the program's; and marks that turn the order of letters round. They are
printed as Python writes them: `\\x1b`, `\\n`, `\\u202e`. Letters of every script, accents and emoji stay unchanged.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

CONTROL = "\x00-\x1f\x7f-\x9f\u2028\u2029"
"""Control characters (C0, DEL, C1), and what ends a line or a paragraph."""
DIRECTION = "\u202a-\u202e\u2066-\u2069"
"""What overrides, embeds or isolates the direction of the text behind it."""
_HARMFUL = re.compile(f"[{CONTROL}{DIRECTION}\ufff9-\ufffb\ud800-\udfff]")
"""Those, marks of annotations, and surrogates, which are no characters: bytes of a file's name that are no UTF-8."""


class NobodyReads(Exception):
    """What reads the output has ended, as `head` does."""


def visible(text: object) -> str:
    """Text on one line, with what could do harm escaped."""
    return _HARMFUL.sub(lambda found: _escaped(found[0]), str(text))


def visible_id(id: str) -> str:
    """An id: everything that has no shape of its own is escaped, as two ids that look alike may differ by it."""
    return "".join(each if each.isprintable() else _escaped(each) for each in id)


def visible_json(value: Any, **how: Any) -> str:
    """JSON that reads back as `value`, with what could do harm escaped as JSON does it."""
    text = json.dumps(value, ensure_ascii=False, **how)
    return "\n".join(_HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in text.split("\n"))


def show(*lines: object) -> None:
    """Prints lines to stdout: one each, whatever is in it."""
    print_lines(sys.stdout, [visible(line) for line in lines])


def warn(message: object) -> None:
    """Prints a message to stderr. Of several lines those behind the first are indented, so that none looks like one."""
    print_lines(sys.stderr, message_lines(message))


def message_lines(message: object) -> list[str]:
    """The lines of a message as `warn` prints them."""
    first, *others = map(visible, str(message).split("\n"))
    return [first, *(line if line.startswith("  ") else f"  {line}" for line in others)]


@contextmanager
def warnings_visible() -> Iterator[None]:
    """Has Python's warnings printed by `warn` until the block ends."""
    shown = warnings.showwarning

    def show_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if file is not None:
            shown(message, category, filename, lineno, file, line)
        else:
            warn(warnings.formatwarning(message, category, filename, lineno, line).rstrip("\n"))

    warnings.showwarning = show_warning
    try:
        yield
    finally:
        warnings.showwarning = shown


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def print_lines(stream: TextIO, lines: list[str]) -> None:
    """Prints lines that are visible already. Raises `NobodyReads` where the other end of a pipe is closed."""
    # A terminal that is not UTF-8 has no form for most characters.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = "".join(f"{line}\n" for line in lines).encode(encoding, errors="backslashreplace").decode(encoding)
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # What Python would write again at its end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise NobodyReads from None
