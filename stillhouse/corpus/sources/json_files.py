"""Reading `.json` files: a whole document, or the elements of a long list one at a time."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stillhouse.corpus.sources.lines import DAMAGED, TOO_MANY_LISTS, has_too_many_lists, open_binary
from stillhouse.errors import InputError

CHUNK = 1 << 20
LONGEST = 1 << 26
"""Characters of one element of a list; a longer one means that the file is damaged."""
LONGEST_DOCUMENT = 1 << 29
"""Bytes of a document that is read as one, unpacked: SQuAD's files have some forty million."""
MOST_LISTS = 1 << 23
"""Lists and objects of such a document: SQuAD's files have some three hundred thousand."""

_SPACE = re.compile(r"[ \t\n\r]*")


def read_document(path: Path) -> Any:
    """The value of a JSON file. Raises `InputError` for a damaged one and for one that is too large for the memory."""
    try:
        with open_binary(path) as file:
            content = file.read(LONGEST_DOCUMENT + 1)
        if len(content) <= LONGEST_DOCUMENT and content.count(b"[") + content.count(b"{") <= MOST_LISTS:
            return json.loads(content.decode("utf-8-sig"))
    except (*DAMAGED, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON, or damaged ({error}); fetch the file again") from None
    raise InputError(
        f"{path} is one JSON document of more than {LONGEST_DOCUMENT >> 20:,} MiB, or of more than {MOST_LISTS:,} "
        "lists and objects, and would be in memory as a whole; divide it into several files, or give the corpus as "
        "JSON lines or Parquet"
    )


def read_elements(path: Path) -> Iterator[Any]:
    """The elements of a JSON file that holds one list, of which one is in memory at a time.

    Raises `InputError` where the file stops being JSON, after the elements before that place.
    """
    number = 0
    try:
        with open_binary(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig") as file:
            for element in _elements(file):
                number += 1
                yield element
    except (*DAMAGED, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is damaged, or no JSON list, after element {number:,} ({error}); fetch the file again"
        ) from None


def _elements(file: io.TextIOWrapper) -> Iterator[Any]:
    """Raises `ValueError` for what is not a list of JSON."""
    decode = json.JSONDecoder().raw_decode
    text, place = "", 0

    def more() -> bool:
        """Reads on, at least as much as there is already, so that an element of any length is decoded a few times."""
        nonlocal text, place
        read = file.read(max(CHUNK, len(text) - place))
        text, place = text[place:] + read, 0
        return bool(read)

    def next_character() -> str:
        """The next character that is no white space, "" at the end."""
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
        while True:
            try:
                value, end = decode(text, place)
            except json.JSONDecodeError as error:
                if len(text) - place > LONGEST or not more():
                    raise ValueError(error.msg) from None
                if has_too_many_lists(text):
                    raise ValueError(TOO_MANY_LISTS) from None
                continue
            # What stands at the end of what was read, a number say, may go on.
            if end < len(text) or not more():
                break
        yield value
        place = end
        between = next_character()
        if between == ",":
            place += 1
        elif between != "]":
            raise ValueError("no comma between two elements" if between else "the list does not end")
