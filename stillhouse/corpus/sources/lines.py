"""Reads text files, plain or gzip: every unreadable line is rejected and the rest is kept."""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import quote

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.rows import CONTENT_LENGTH, Rejected
from stillhouse.corpus.sources.spans import WHOLE, Span
from stillhouse.corpus.sources.text_encoding import marked_encoding

T = TypeVar("T")


class Fields(dict[str, Any]):
    """A JSON object, with the place it was read from and its text. Made by `placed`."""

    __slots__ = ("text", "where")
    where: str
    text: str

    @property
    def content(self) -> str:
        """The text that `rejected.parquet` shows."""
        return self.text[:CONTENT_LENGTH]


def placed(values: Mapping[str, Any], where: str = "", text: str = "") -> Fields:
    """Fields with their place. An `__init__` would take as long as reading the JSON."""
    fields = Fields(values)
    fields.where = where
    fields.text = text
    return fields


class IllTyped(ValueError):
    """A field is missing or has the wrong type; the message is the reason for `rejected.parquet`."""


def find_file(folder: Path, name: str) -> Path | None:
    """`name` or `name.gz` in a folder, or None. Raises `InputError` if both exist."""
    found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(found) == 2:
        raise InputError(f"{folder} has both {name} and {name}.gz; remove one of them")
    return found[0] if found else None


def required_file(folder: Path, name: str) -> Path:
    """`name` or `name.gz` in a folder. Raises `InputError` if there is neither, or both."""
    path = find_file(folder, name)
    if path is None:
        raise InputError(f"{folder} has no {name} or {name}.gz")
    return path


def open_binary(path: Path) -> BinaryIO:
    """Opens a file for reading bytes, unpacked if its name ends in `.gz`."""
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
"""Errors that reading a damaged gzip file raises."""


def read_lines(
    path: Path, name: str, *, blank: bool = False, span: Span = WHOLE
) -> Iterator[tuple[int, str] | Rejected]:
    """The lines of a file, as (1-based number, text without its line end). Without `blank`, blank lines are skipped.
    With a span, only the lines that begin in it.

    A line that is not UTF-8 becomes a `Rejected`. Raises `InputError` for an empty file, a damaged gzip file, and one
    in UTF-16 or UTF-32.
    """
    number, any_line = 0, False
    place, end = span.begin, span.end
    try:
        with open_binary(path) as file:
            if place:
                file.seek(place)
            for number, raw in enumerate(file, start=span.line):
                if place >= end:
                    return
                place += len(raw)
                if number == 1:
                    encoding, raw = marked_encoding(raw)
                    if encoding not in ("", "utf-8"):
                        raise InputError(f"{path} is in {encoding.upper()}; save it as UTF-8")
                if raw and not raw.isspace():
                    any_line = True
                elif not blank:
                    continue
                raw = raw.rstrip(b"\r\n")
                try:
                    yield number, raw.decode("utf-8")
                except UnicodeDecodeError:
                    content = raw.decode("utf-8", errors="replace")[:CONTENT_LENGTH]
                    yield Rejected("line", "", "not UTF-8", f"{name}:{number}", content)
    except DAMAGED as error:
        raise InputError(f"{path} is cut off or damaged after line {number} ({error}); fetch the file again") from None
    if not any_line and span == WHOLE:  # a divided file always has a line
        raise InputError(f"{path} is empty; fill it or remove it")


def read_objects(path: Path, name: str, span: Span = WHOLE) -> Iterator[Fields | Rejected]:
    """The JSON objects of a file or a span of it, one per line; any other line becomes a `Rejected`."""
    for line in read_lines(path, name, span=span):
        if isinstance(line, Rejected):
            yield line
            continue
        number, text = line
        where, value, reason = f"{name}:{number}", None, "not a JSON object"
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            reason = "not JSON"
        if isinstance(value, dict):
            yield placed(value, where, text)
        else:
            yield Rejected("line", "", reason, where, text[:CONTENT_LENGTH])


def together(items: Iterable[T], size_of: Callable[[T], int], size: int, most: int = 0) -> Iterator[list[T]]:
    """Groups items until their sizes reach `size` together, or a group has `most` items (0 = any number)."""
    some: list[T] = []
    total = 0
    for item in items:
        some.append(item)
        total += size_of(item)
        if total >= size or len(some) == most:
            yield some
            some, total = [], 0
    if some:
        yield some


def spaceless(text: str) -> str:
    """A name as an id: white space, which a TREC run file cannot hold, is percent-encoded."""
    return re.sub(r"\s", lambda match: quote(match.group(), errors="replace"), text)


def identifier(fields: Fields, names: tuple[str, ...]) -> str:
    """The value of the first of `names` that the object has; whole numbers are ids too. Raises `IllTyped`."""
    for name in names:
        if name in fields:
            value = fields[name]
            if isinstance(value, str):
                return value
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            raise IllTyped(f"{name} is not text")
    raise IllTyped(f"no {names[0]}")


def text_id(text: str) -> str:
    """The id of a passage that has none: a digest of its text, the same in every file."""
    return blake2b(text.strip().encode("utf-8", errors="replace"), digest_size=8).hexdigest()


def identifier_or_digest(fields: Fields, names: tuple[str, ...], title: str, text: str) -> str:
    """The identifier of a passage, or `text_id` of its title and text if it has none of these fields.

    Raises `IllTyped`.
    """
    if any(name in fields for name in names):
        return identifier(fields, names)
    return text_id(f"{title}\n{text}" if title else text)


def in_any_case(names: Iterable[str]) -> dict[str, str]:
    """Names of columns by what they are in lower case, as people also write Question and Answer."""
    found = {name: name for name in names}
    for name in list(found):
        found.setdefault(name.lower(), name)
    return found


def text_field(fields: Fields, name: str, *, optional: bool = False) -> str:
    """The text of a field; "" for an optional one that is missing or null. Raises `IllTyped`."""
    return _typed(fields, name, str, "text", optional)


def list_field(fields: Fields, name: str, *, optional: bool = False) -> list[Any]:
    """The list of a field; [] for an optional one that is missing or null. Raises `IllTyped`."""
    return _typed(fields, name, list, "a list", optional)


def _typed(fields: Fields, name: str, kind: type[T], words: str, optional: bool) -> T:
    value = fields.get(name)
    if isinstance(value, kind):
        return value
    if value is None and optional:
        return kind()
    raise IllTyped(f"{name} is not {words}" if name in fields else f"no {name}")


def object_of(value: object, what: str = "") -> Fields:
    """A value of JSON as fields without a place. Raises `IllTyped` unless it is an object."""
    if not isinstance(value, dict):
        raise IllTyped(f"{what}not a JSON object")
    return placed(value)


def made_of(
    objects: Iterable[Fields | T | Rejected], kind: str, ids: tuple[str, ...], make: Callable[[Fields], Iterable[T]]
) -> Iterator[T | Rejected]:
    """What `make` makes of each object; if it raises `IllTyped`, the object is rejected as a row of this kind."""
    for fields in objects:
        if not isinstance(fields, Fields):
            yield fields
            continue
        try:
            yield from make(fields)
        except IllTyped as reason:
            yield Rejected(kind, shown_id(fields, ids), str(reason), fields.where, fields.content)


def shown_id(fields: Fields, names: tuple[str, ...]) -> str:
    """The id of an object with ill-typed fields, or "", for `rejected.parquet`."""
    return next((str(fields[name]) for name in names if isinstance(fields.get(name), (str, int))), "")
