"""Prints to a terminal or a log so that foreign text can move no cursor, set no colour and forge no line.

A title, a file name or a setting may hold control characters, which drive a terminal; line breaks, which could start a
line that looks like the program's own; and marks that reverse the order of letters. They are printed as Python escapes
them: `\\x1b`, `\\n`, `\\u202e`. Letters of every script, accents and emoji stay unchanged.
"""

import json
import os
import re
import sys
from typing import Any, TextIO

CONTROL = "\x00-\x1f\x7f-\x9f\u2028\u2029"
"""Control characters (C0, DEL, C1), and line and paragraph separators."""
DIRECTION = "\u202a-\u202e\u2066-\u2069"
"""Characters that override, embed or isolate the direction of the text after them."""
_HARMFUL = re.compile(f"[{CONTROL}{DIRECTION}\ufff9-\ufffb\ud800-\udfff]")
"""These, annotation marks, and surrogates, which stand for bytes of a file name that are not UTF-8."""


class NobodyReads(Exception):
    """The reader of the output has exited, as `head` does."""


def visible(text: object) -> str:
    """Text on one line, with harmful characters escaped."""
    return _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), str(text))


def visible_json(value: Any, **how: Any) -> str:
    """JSON that reads back as `value`, with harmful characters escaped as in JSON."""
    text = json.dumps(value, ensure_ascii=False, **how)
    return "\n".join(_HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in text.split("\n"))


def show(*lines: object) -> None:
    """Prints to stdout, one line for each of `lines`, whatever it contains."""
    print_lines(sys.stdout, [visible(line) for line in lines])


def warn(message: object) -> None:
    """Prints a message to stderr. Lines after the first are indented, so that none looks like a message of its own."""
    print_lines(sys.stderr, message_lines(message))


def message_lines(message: object) -> list[str]:
    """The lines of a message as `warn` prints them."""
    first, *others = map(visible, str(message).split("\n"))
    return [first, *(line if line.startswith("  ") else f"  {line}" for line in others)]


def print_lines(stream: TextIO, lines: list[str]) -> None:
    """Prints lines that are already escaped. Raises `NobodyReads` if the other end of a pipe is closed."""
    # A terminal that is not UTF-8 cannot encode most characters.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = "".join(f"{line}\n" for line in lines).encode(encoding, errors="backslashreplace").decode(encoding)
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # Discards what Python would write again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise NobodyReads from None
