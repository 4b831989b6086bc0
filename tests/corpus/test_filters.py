"""Conditions on the fields of passages, compared with a loop over all passages, and those that are refused."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.core.errors import InputError
from stillhouse.corpus.fields import Where, rows_where, typed_conditions

texts = st.sampled_from(["", "a", "ab", "b", "é", "2024-01-01", "2024-10-01"])
whole = st.one_of(st.integers(-3, 3), st.sampled_from([2**62, -(2**63)]))
numbers = st.one_of(whole, st.sampled_from([-0.0, 0.5, 2.0, float("inf")]))
VALUES: Mapping[str, tuple[pa.DataType, st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    "name": (pa.string(), texts, texts),
    "year": (pa.int64(), whole, numbers),
    "price": (pa.float64(), st.sampled_from([-0.0, 0.0, 0.5, 2.0, float("inf")]), numbers),
    "new": (pa.bool_(), st.booleans(), st.booleans()),
    "tags": (pa.list_(pa.string()), st.lists(texts, max_size=3), texts),
}
OPERATORS = {"gte": operator.ge, "gt": operator.gt, "lte": operator.le, "lt": operator.lt}


@st.composite
def conditions(draw: st.DrawFn) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(list(VALUES)), max_size=3, unique=True)):
        value = VALUES[name][2]
        equal = st.one_of(value, st.lists(value, max_size=3))
        choices = {"not": equal} if name in ("new", "tags") else {"not": equal, **dict.fromkeys(OPERATORS, value)}
        made[name] = draw(st.one_of(equal, st.fixed_dictionaries({}, optional=choices)))
    return made


def meets(passage: Mapping[str, Any], where: Where) -> bool:
    if isinstance(where, list):
        return all(meets(passage, part) for part in where)
    assert isinstance(where, Mapping)
    for name, wanted in where.items():
        held = passage[name]
        for operation, value in (wanted if isinstance(wanted, Mapping) else {"any": wanted}).items():
            some = value if isinstance(value, list) else [value]
            if held is None:
                return False
            if operation in OPERATORS:
                if not OPERATORS[operation](held, value):
                    return False
            else:
                equal = any(one in held if name == "tags" else one == held for one in some)
                if equal != (operation == "any"):
                    return False
    return True


passages = st.lists(
    st.fixed_dictionaries({name: st.none() | held for name, (_, held, _) in VALUES.items()}), max_size=8
)
SCHEMA = pa.schema([(name, type) for name, (type, _, _) in VALUES.items()])


@given(rows=passages, where=st.one_of(conditions(), st.lists(conditions(), max_size=2)), cut=st.integers(0, 8))
def test_the_rows_are_those_of_a_loop(rows: list[dict[str, Any]], where: Where, cut: int) -> None:
    parts = [pa.Table.from_pylist(part, SCHEMA) for part in (rows[:cut], rows[cut:])]
    found = rows_where(pa.concat_tables(parts), where)
    assert found.tolist() == [number for number, row in enumerate(rows) if meets(row, where)]


@pytest.mark.parametrize(
    ("typed", "where"),
    [
        ("name=vpn", {"name": ["vpn"]}),
        ('name = vpn, "mail, old"', {"name": ["vpn", "mail, old"]}),
        ("name!=", {"name": {"not": [""]}}),
        ("name>=a=b", {"name": {"gte": "a=b"}}),
        ("year>2023", {"year": {"gt": 2023}}),
        ("year=2023,2.5", {"year": [2023, 2.5]}),
        ("price<=1e3", {"price": {"lte": 1000.0}}),
        ("new!=True", {"new": {"not": [True]}}),
        ("tags=7", {"tags": ["7"]}),
    ],
)
def test_a_typed_condition_is_read_by_the_type_of_its_field(typed: str, where: Where) -> None:
    assert typed_conditions(SCHEMA, [typed]) == [where]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"nmae": "vpn"}, "no field 'nmae'; it has name, year, price, new, tags"),
        ({"year": "2024"}, "'year' holds numbers, not \"2024\""),
        ({"year": True}, "holds numbers, not true"),
        ({"year": 2**63}, "holds numbers, not 9223372036854775808"),
        ({"name": [None]}, "holds texts, not null"),
        ({"name": "\ud800"}, "holds texts, not"),
        ({"name": {"gte": ["a"]}}, "holds texts, not"),
        ({"name": {"like": "a"}}, "'like' compares nothing; use gte, gt, lte, lt or not"),
        ({"new": {"lt": True}}, "have no order"),
        ({"tags": {"gt": "a"}}, "lists of texts, which have no order"),
        ("name=vpn", "must be an object"),
        (["nmae=vpn"], "no field 'nmae'"),
        (["year=soon"], 'holds numbers, not "soon"'),
        (["name"], "is not a condition; write it as product=vpn"),
        (["year>1,2"], "compares with several values"),
    ],
)
def test_a_condition_that_fits_no_field_is_refused(where: Any, message: str) -> None:
    typed = isinstance(where, list)
    with pytest.raises(InputError, match=message):
        typed_conditions(SCHEMA, where) if typed else rows_where(SCHEMA.empty_table(), where)


def test_a_corpus_without_fields_says_how_to_keep_some() -> None:
    for refused in (lambda: typed_conditions(pa.schema([]), ["a=b"]), lambda: rows_where(pa.table({}), {"a": "b"})):
        with pytest.raises(InputError, match="has no fields, so none is 'a'; name some in `fields` of"):
            refused()
