"""Reads `.json` files: a whole document, or the elements of a long list one at a time."""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.lines import DAMAGED, Fields, open_binary, placed, read_objects
from stillhouse.corpus.sources.rows import CONTENT_LENGTH, Rejected
from stillhouse.corpus.sources.spans import WHOLE, Span

CHUNK = 1 << 20
_SPACE = re.compile(r"[ \t\n\r]*")


def read_document(path: Path) -> Any:
    """The value of a JSON file. Raises `InputError` if it is damaged."""
    try:
        with open_binary(path) as file:
            return json.loads(file.read().decode("utf-8-sig"))
    except (*DAMAGED, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON, or damaged ({error}); fetch the file again") from None


def read_elements(path: Path) -> Iterator[Any]:
    """The elements of a JSON file that holds one list, with one element in memory at a time.

    At damage, raises `InputError` after the elements before it.
    """
    number = 0
    try:
        with open_binary(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig") as file:
            for element in _elements(file):
                number += 1
                yield element
    except (*DAMAGED, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is damaged, or not a JSON list, after element {number:,} ({error}); fetch the file again"
        ) from None


def beginning(path: Path) -> bytes:
    """The first bytes of a file without white space; none if it cannot be read, which its reader reports."""
    try:
        with open_binary(path) as file:
            return file.read(1 << 12).removeprefix(b"\xef\xbb\xbf").lstrip()
    except (*DAMAGED, OSError):
        return b""


def holds_list(path: Path) -> bool:
    """Whether a JSON file is one list, not an object or a line for each row."""
    return beginning(path).startswith(b"[")


def read_rows(path: Path, name: str, span: Span = WHOLE) -> Iterator[Fields | Rejected]:
    """The objects of a JSON list, or of JSON lines or a span of them; each has its place."""
    return _read_list(path, name) if span == WHOLE and holds_list(path) else read_objects(path, name, span)


def _read_list(path: Path, name: str) -> Iterator[Fields | Rejected]:
    """The objects of a JSON list; a text is an object with nothing but a `text`."""
    for number, element in enumerate(read_elements(path), start=1):
        where, content = f"{name}:{number}", str(element)[:CONTENT_LENGTH]
        if isinstance(element, (dict, str)):
            yield placed({"text": element} if isinstance(element, str) else element, where, content)
        else:
            yield Rejected("line", "", "neither a JSON object nor a text", where, content)


def _elements(file: io.TextIOWrapper) -> Iterator[Any]:
    """The elements of a JSON list. Raises `ValueError` if the file is not one."""
    decode = json.JSONDecoder().raw_decode
    text, place = "", 0

    def more() -> bool:
        """Reads more, at least as much as is waiting, so that an element of any length is decoded only a few times."""
        nonlocal text, place
        read = file.read(max(CHUNK, len(text) - place))
        text, place = text[place:] + read, 0
        return bool(read)

    def next_character() -> str:
        """The next character other than white space, "" at the end."""
        nonlocal place
        while True:
            place = _SPACE.match(text, place).end()  # type: ignore[union-attr]
            if place < len(text):
                return text[place]
            if not more():
                return ""

    if next_character() != "[":
        raise ValueError("it does not begin with [")
    place += 1
    between = ""
    while True:
        character = next_character()
        if character == "]" and between != ",":
            place += 1
            if next_character():
                raise ValueError("there is more after the list")
            return
        before = ""
        while True:
            try:
                value, end = decode(text, place)
            except json.JSONDecodeError as error:
                # More text mends a value that was cut off: its error moves or goes, except for a long text.
                fault = f"{error.msg} {error.pos - place}"
                if (fault == before and "Unterminated" not in fault) or not more():
                    raise ValueError(error.msg) from None
                before = fault
                continue
            # A value at the end of the text, such as a number, may continue.
            if end < len(text) or not more():
                break
        yield value
        place = end
        between = next_character()
        if between == ",":
            place += 1
        elif between != "]":
            raise ValueError("no comma between two elements" if between else "the list does not end")
