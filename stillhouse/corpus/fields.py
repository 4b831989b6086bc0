"""The fields of passages, such as a page, a product or a date, and which passages meet conditions on them.

Fields are gathered as JSON, then written as typed columns. A column has the narrowest of these types that holds all its
values: boolean, whole number, number, text, list of texts. Dates are texts: in ISO form (2026-11-28) their order is
that of time.

Conditions are like `{"product": "vpn", "date": {"gte": "2024-01-01"}}`. A field must equal a value, or one of a list of
values. An object compares instead: `gte`, `gt`, `lte`, `lt` and `not`, which takes a list too. A list of texts equals
each text that it contains. All conditions must hold. A passage without the field meets no condition on it, not even
`not`, as in SQL.

Shapes: B passages of a block, N passages, F that meet the conditions.
"""

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.rows import Value
from stillhouse.corpus.sources.text_encoding import is_unicode
from stillhouse.corpus.table_file import TableFile

FILE = "fields.parquet"
"""The table of a corpus folder with a row per passage, in their order; absent if no passage has a field."""
ROWS = 8192
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?")
"""A number, for a text that stands for one; 007 is a name."""
_BOOLEANS = {"true": True, "false": False}
_SCHEMA = pa.schema([("fields", pa.string())])
Where = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Conditions as JSON; several objects must hold together too, so that a field may be in each of them."""
ORDERS = {"gte": pc.greater_equal, "gt": pc.greater, "lte": pc.less_equal, "lt": pc.less}
ANY, NOT = "any", "not"
SIGNS = {"=": ANY, "!=": NOT, ">=": "gte", ">": "gt", "<=": "lte", "<": "lt"}
_TYPED = re.compile(r"([^=<>!]+)(!=|>=|<=|=|>|<)([^\r\n]*)")


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
    if pa.types.is_floating(type):
        return float(value)
    if not isinstance(value, str):
        return value
    if pa.types.is_boolean(type):
        return _BOOLEANS[value.lower()]
    return int(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class Condition(NamedTuple):
    """`operation` is `ANY`, `NOT` or a key of `ORDERS`; an order has one value."""

    field: str
    operation: str
    values: list[Any]


def rows_where(fields: pa.Table, where: Where) -> NDArray[np.int32]:
    """The rows, ascending, int32 [F], of the passages that meet all conditions. Raises `InputError` as `checked`."""
    masks_N = [_mask(fields[each.field], each) for each in checked(fields.schema, where)]
    return np.flatnonzero(reduce(np.logical_and, masks_N, np.ones(len(fields), np.bool_))).astype(np.int32)


def checked(schema: pa.Schema, where: Where) -> list[Condition]:
    """The conditions, each fit for its field. Raises `InputError` for an unknown field and a value of another type."""
    found = [each for part in ([where] if isinstance(where, Mapping) else where) for each in _conditions(part)]
    for each in found:
        type = _type_of(schema, each.field)
        if each.operation in ORDERS and not (_is_number(type) or pa.types.is_string(type)):
            raise InputError(f"the field {each.field!r} holds {_name(type)}, which have no order; use = or !=")
        for value in each.values:
            if not _fits(value, type):
                given = json.dumps(value, default=str)[:80]
                raise InputError(f"the field {each.field!r} holds {_name(type)}, not {given}; compare it with such")
    return found


def typed_conditions(schema: pa.Schema, texts: Sequence[str]) -> list[Mapping[str, Any]]:
    """Conditions as a person types them, such as `product=vpn,mail` or `date>=2024-01-01`.

    A comma separates values, unless they are quoted. Raises `InputError`, also as `checked` does.
    """
    return [_typed(schema, text) for text in texts]


def _typed(schema: pa.Schema, text: str) -> Mapping[str, Any]:
    parts = _TYPED.fullmatch(text)
    if parts is None:
        raise InputError(f"{text!r} is not a condition; write it as product=vpn, with one of {' '.join(SIGNS)}")
    name, sign, given = parts.groups()
    name, type = name.strip(), _type_of(schema, name.strip())
    values = [_value(each, type) for each in next(csv.reader([given], skipinitialspace=True)) or [""]]
    operation = SIGNS[sign]
    if operation in ORDERS and len(values) > 1:
        raise InputError(f"{text!r} compares with several values; give one, or quote it")
    where = {name: values if operation == ANY else {operation: values[0] if operation in ORDERS else values}}
    checked(schema, where)
    return where


def _value(text: str, type: pa.DataType) -> Any:
    """A typed value as one of the field's type, or as it is if it does not look so."""
    if pa.types.is_string(type) or pa.types.is_list(type):
        return text
    try:
        return json.loads(text.lower())
    except ValueError:
        return text


def _conditions(where: Any) -> Iterator[Condition]:
    if not isinstance(where, Mapping):
        raise InputError('conditions on fields must be an object, such as {"product": "vpn"}')
    for name, wanted in where.items():
        if not isinstance(wanted, Mapping):
            yield Condition(name, ANY, _listed(wanted))
            continue
        for operation, value in wanted.items():
            if operation not in (*ORDERS, NOT):
                raise InputError(f"{operation!r} compares nothing; use {', '.join(ORDERS)} or {NOT}")
            yield Condition(name, operation, [value] if operation in ORDERS else _listed(value))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, set)) else [value]


def _type_of(schema: pa.Schema, name: str) -> pa.DataType:
    if name in schema.names:
        return schema.field(name).type
    if not schema.names:
        raise InputError(f"the corpus has no fields, so none is {name!r}; name some in `fields` of `stillhouse ingest`")
    raise InputError(f"the corpus has no field {name!r}; it has {', '.join(schema.names)}")


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type))


def _name(type: pa.DataType) -> str:
    if pa.types.is_list(type):
        return "lists of texts"
    if _is_number(type):
        return "numbers"
    return "true or false" if pa.types.is_boolean(type) else "texts"


def _fits(value: object, type: pa.DataType) -> bool:
    if pa.types.is_boolean(type) or isinstance(value, bool):
        return bool(pa.types.is_boolean(type)) and isinstance(value, bool)
    if _is_number(type):
        return isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63)
    return isinstance(value, str) and is_unicode(value)


def _mask(column_N: pa.ChunkedArray, condition: Condition) -> NDArray[np.bool_]:
    """Which passages meet a condition, bool [N]."""
    values, type = condition.values, column_N.type
    if pa.types.is_floating(type) or (_is_number(type) and any(isinstance(value, float) for value in values)):
        type = pa.float64()
        values = [float(value) + 0.0 for value in values]  # -0.0 becomes 0.0, its equal
        column_N = pc.add(column_N.cast(type, safe=False), 0.0)
    if condition.operation in ORDERS:
        return _flags(ORDERS[condition.operation](column_N, pa.scalar(values[0], type)))
    if pa.types.is_list(type):
        wanted = pa.array(values, type.value_type)
        equal_N = np.concatenate([np.empty(0, np.bool_), *(_contains(chunk, wanted) for chunk in column_N.chunks)])
    else:
        equal_N = _flags(pc.is_in(column_N, value_set=pa.array(values, type)))
    return equal_N if condition.operation == ANY else _flags(pc.is_valid(column_N)) & ~equal_N


def _contains(lists_N: pa.Array, wanted: pa.Array) -> NDArray[np.bool_]:
    """Whether each list has one of the wanted texts, bool [N]."""
    found_N = np.zeros(len(lists_N), np.bool_)
    found_N[pc.list_parent_indices(lists_N).filter(pc.is_in(lists_N.flatten(), value_set=wanted)).to_numpy()] = True
    return found_N


def _flags(column_N: pa.ChunkedArray) -> NDArray[np.bool_]:
    """A column of booleans as an array, in which null is false."""
    return pc.fill_null(column_N, False).to_numpy()
