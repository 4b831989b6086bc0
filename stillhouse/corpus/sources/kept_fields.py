"""The fields of a source's passages that are kept: those named by the setting `fields`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.corpus.fields import FILE
from stillhouse.corpus.sources.lines import Fields
from stillhouse.corpus.sources.rows import Passage, Rejected
from stillhouse.corpus.sources.table_columns import FIELD

METADATA = "metadata"
"""The key of an object with more keys, as some sets in BEIR layout have it."""


def kept_fields(names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of these names in an object or its metadata."""
    if not names:
        return None
    more = given.get(METADATA)
    every = {**more, **given} if isinstance(more, dict) else given
    return {name: every[name] for name in names if name in every}


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
