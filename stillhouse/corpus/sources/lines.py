"""Reading text files line by line: plain or gzip, with every unreadable line rejected and the rest kept."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stillhouse.corpus.sources.rows import CONTENT_LENGTH, Rejected
from stillhouse.errors import InputError


class Fields(dict[str, Any]):
    """A JSON object, with the place it was read from and the beginning of its text."""

    def __init__(self, values: dict[str, Any], where: str, content: str) -> None:
        super().__init__(values)
        self.where = where
        self.content = content


class IllTyped(ValueError):
    """A field is missing or has the wrong type; the message is the reason for `rejected.parquet`."""


def find_file(folder: Path, name: str) -> Path | None:
    """`name` or `name.gz` in a folder, None when there is neither. Raises `InputError` when there are both."""
    found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(found) == 2:
        raise InputError(f"{folder} has both {name} and {name}.gz; remove one of them")
    return found[0] if found else None


def read_lines(path: Path, name: str) -> Iterator[tuple[int, str] | Rejected]:
    """The lines of a file that are not blank, as (1-based number, text without its line end).

    A line that is not UTF-8 becomes a `Rejected`. Raises `InputError` for an empty file and a damaged gzip.
    """
    number, any_line = 0, False
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                raw = raw.rstrip(b"\r\n")
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                if not raw.strip():
                    continue
                any_line = True
                try:
                    yield number, raw.decode("utf-8")
                except UnicodeDecodeError:
                    content = raw.decode("utf-8", errors="replace")[:CONTENT_LENGTH]
                    yield Rejected("line", "", "not UTF-8", f"{name}:{number}", content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is cut off or damaged after line {number} ({error}); fetch the file again") from None
    if not any_line:
        raise InputError(f"{path} is empty; fill it or remove it")


def read_objects(path: Path, name: str) -> Iterator[Fields | Rejected]:
    """The JSON objects of a file, one a line; a line that is none becomes a `Rejected`."""
    for line in read_lines(path, name):
        if isinstance(line, Rejected):
            yield line
            continue
        number, text = line
        where, content = f"{name}:{number}", text[:CONTENT_LENGTH]
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            yield Rejected("line", "", "not JSON", where, content)
            continue
        if isinstance(value, dict):
            yield Fields(value, where, content)
        else:
            yield Rejected("line", "", "not a JSON object", where, content)


def identifier(fields: Fields, names: tuple[str, ...]) -> str:
    """The value of the first of `names` that is there; whole numbers are ids too. Raises `IllTyped`."""
    for name in names:
        if name in fields:
            value = fields[name]
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            return _text(value, name)
    raise IllTyped(f"no {names[0]}")


def text_field(fields: Fields, name: str, *, optional: bool = False) -> str:
    """The text of a field; "" for an optional one that is missing or null. Raises `IllTyped`."""
    value = fields.get(name)
    if value is None and optional:
        return ""
    if name not in fields:
        raise IllTyped(f"no {name}")
    return _text(value, name)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise IllTyped(f"{name} is not text")
    return value


def shown_id(fields: Fields, names: tuple[str, ...]) -> str:
    """The id of an object whose fields are ill-typed, as far as it has one, for `rejected.parquet`."""
    return next((str(fields[name]) for name in names if isinstance(fields.get(name), (str, int))), "")
