"""The fields of passages, such as a page, a product or a date: gathered as JSON, then written as typed columns.

A column has the narrowest of these types that holds all its values: boolean, whole number, number, text, list of texts.
Dates are texts: in ISO form (2026-11-28) their order is that of time.

Shapes: B passages of a block.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.rows import Value
from stillhouse.corpus.table_file import TableFile

FILE = "fields.parquet"
"""The table of a corpus folder with a row per passage, in their order; absent if no passage has a field."""
ROWS = 8192
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?")
"""A number, for a text that stands for one; 007 is a name."""
_BOOLEANS = {"true": True, "false": False}
_SCHEMA = pa.schema([("fields", pa.string())])


def fields_as_text(fields_B: Sequence[Mapping[str, Any] | None]) -> pa.Array:
    """The fields of each passage as a JSON object, null without any: string [B]."""
    if not any(fields_B):
        return pa.nulls(len(fields_B), pa.string())
    given = [{name: value for name, value in (row or {}).items() if not _is_missing(value)} for row in fields_B]
    texts = [json.dumps(fields, ensure_ascii=False, default=_simple) if fields else None for fields in given]
    # JSON can contain lone surrogates, which UTF-8 cannot encode; they become question marks.
    return pa.array([text and text.encode("utf-8", "replace").decode() for text in texts], pa.string())


class FieldsFile:
    """The fields of passages as they come.

    Without `path` the file is in memory. Call `write` for every block of passages and then `close`.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = TableFile(path, _SCHEMA)
        self._any = False

    def write(self, fields_B: pa.Array) -> None:
        self._any |= fields_B.null_count < len(fields_B)
        self._file.write_rows(pa.Table.from_arrays([fields_B], schema=_SCHEMA))

    def close(self) -> None:
        self._file.close()

    def blocks(self) -> Iterator[pa.Array]:
        """The fields of all passages as text, in blocks of `ROWS`."""
        for block in self._file.blocks(["fields"], ROWS):
            yield block.column(0)

    def write_typed(self, folder: Path, cells: bool = False) -> list[str]:
        """Writes `FILE` into a corpus folder, unless no passage has a field. Returns the names of the fields.

        With `cells`, values are texts, as in a CSV file. A column whose texts are all numbers, or all true or false,
        has that type, and an empty text is no value.
        """
        kinds: dict[str, set[type]] = {}
        for row in self._objects(cells) if self._any else ():
            for name, value in row.items():
                kinds.setdefault(name, set()).add(_kind(value, cells))
        if kinds:
            schema = pa.schema([(name, _column_type(found)) for name, found in kinds.items()])
            table = TableFile(folder / FILE, schema)
            rows = self._objects(cells)
            while block := list(islice(rows, ROWS)):
                table.write({field.name: [_as(row.get(field.name), field.type) for row in block] for field in schema})
            table.close()
        self.remove()
        return list(kinds)

    def remove(self) -> None:
        if self._file.path is not None:
            self._file.path.unlink()

    def _objects(self, cells: bool) -> Iterator[dict[str, Any]]:
        for block in self.blocks():
            for text in block.to_pylist():
                row = json.loads(text) if text else {}
                yield {name: value for name, value in row.items() if value != ""} if cells else row


def given_fields(path: Path, first: int, count: int) -> Iterator[dict[str, Any]]:
    """The fields of each passage from row `first`, from a corpus's `FILE`.

    Raises `InputError` for a damaged file, or one of more or fewer passages than `count`.
    """
    try:
        with pq.ParquetFile(path) as file:
            if file.metadata.num_rows != count:
                raise ValueError(f"{file.metadata.num_rows:,} rows for {count:,} passages")
            begin = 0
            for group in range(file.num_row_groups):
                end = begin + file.metadata.row_group(group).num_rows
                for batch in file.iter_batches(ROWS, row_groups=[group]) if end > first else ():
                    yield from batch.slice(min(max(first - begin, 0), len(batch))).to_pylist()
                    begin += len(batch)
                begin = end
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); run `stillhouse ingest` again") from None


def present(rows: list[dict[str, Any]]) -> list[dict[str, Value]]:
    """The fields of rows of `FILE` that are not null."""
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _simple(value: object) -> object:
    """A value of a Parquet table as JSON can hold it."""
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def _kind(value: object, cells: bool) -> type:
    if cells and isinstance(value, str):
        if value.lower() in _BOOLEANS:
            return bool
        found = _NUMBER.fullmatch(value)
        return str if not found else float if found[2] or found[3] else int
    if isinstance(value, list):
        return list
    whole = type(value) is int and -(2**63) <= value < 2**63
    return type(value) if whole or isinstance(value, (bool, float)) else str


def _column_type(kinds: set[type]) -> pa.DataType:
    if list in kinds:
        return pa.list_(pa.string())
    if kinds == {bool}:
        return pa.bool_()
    if kinds <= {int, float}:
        return pa.float64() if float in kinds else pa.int64()
    return pa.string()


def _as(value: Any, type: pa.DataType) -> Any:
    """A value as one of its column's type."""
    if value is None:
        return None
    if pa.types.is_list(type):
        return [_text(each) for each in (value if isinstance(value, list) else [value])]
    if pa.types.is_string(type):
        return _text(value)
    if not isinstance(value, str):
        return value
    if pa.types.is_boolean(type):
        return _BOOLEANS[value.lower()]
    return int(value) if pa.types.is_integer(type) else float(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
