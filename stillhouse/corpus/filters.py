"""Which passages meet conditions on their fields, such as `{"product": "vpn", "date": {"gte": "2024-01-01"}}`.

A field must equal a value, or one of a list of values. An object compares instead: `gte`, `gt`, `lte`, `lt` and `not`,
which takes a list too. A list of texts equals each text that it contains. All conditions must hold. A passage without
the field meets no condition on it, not even `not`, as in SQL.

Shapes: N passages, F that meet the conditions.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.text_encoding import is_unicode

Where = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Conditions as JSON; several objects must hold together too, so that a field may be in each of them."""
ORDERS = {"gte": pc.greater_equal, "gt": pc.greater, "lte": pc.less_equal, "lt": pc.less}
ANY, NOT = "any", "not"
SIGNS = {"=": ANY, "!=": NOT, ">=": "gte", ">": "gt", "<=": "lte", "<": "lt"}
_TYPED = re.compile(r"([^=<>!]+)(!=|>=|<=|=|>|<)([^\r\n]*)")


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
