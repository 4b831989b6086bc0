"""The fields of a source's passages that are kept: those named by the setting `fields`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.corpus.fields import FILE
from stillhouse.corpus.sources.lines import Fields, read_objects
from stillhouse.corpus.sources.rows import Passage, Rejected
from stillhouse.corpus.sources.table_columns import FIELD

METADATA = "metadata"
"""The key of an object with more keys, as some sets in BEIR layout have it."""
MOST_SHOWN = 20


def kept_fields(names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of these names in an object or its metadata."""
    if not names:
        return None
    more = given.get(METADATA)
    every = {**more, **given} if isinstance(more, dict) else given
    return {name: every[name] for name in names if name in every}


def not_kept(names: Sequence[str], present: Iterable[str], read: Iterable[str]) -> tuple[str, ...]:
    """A note on what of a passage, besides the keys that are `read`, could be kept as fields."""
    others = [name for name in dict.fromkeys(present) if name not in names and name not in read]
    shown = ", ".join(others[:MOST_SHOWN]) + ", …" * (len(others) > MOST_SHOWN)
    return (f"not kept: {shown}; to filter a search by one, name it in `fields`",) if others else ()


def first_not_kept(path: Path, names: Sequence[str], read: Iterable[str]) -> tuple[str, ...]:
    """`not_kept` for a file of JSON objects, by its first one."""
    first: Mapping[str, Any] = {}
    with suppress(InputError):  # reading the file will report the damage
        first = next((row for row in read_objects(path, path.name) if isinstance(row, Fields)), first)
    more = first.get(METADATA)
    present = [*(name for name in first if name != METADATA), *more] if isinstance(more, dict) else first
    return not_kept(names, present, read)


def fields_beside(passages: Path) -> list[Path]:
    """The fields of a corpus's table of passages, if it has any."""
    path = passages.with_name(FILE)
    return [path] if passages.name == "passages.parquet" and path.is_file() else []


def with_fields(row: Fields | Passage | Rejected, fields: Mapping[str, Any]) -> Fields | Passage | Rejected:
    """A row of a table of passages with the fields beside it, and its own."""
    if isinstance(row, Passage):
        return row._replace(fields={**fields, **(row.fields or {})})
    if isinstance(row, Fields):
        for name, value in fields.items():
            row.setdefault(FIELD + name, value)
    return row
