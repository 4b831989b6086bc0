"""Reads tables slowly, by `docs/reference/formats.md`: Parquet as a list of Python values, CSV and TSV by hand."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
from slow_cells import Refused, quoting_rows, tab_rows

Row = tuple[Any, ...]
Files = dict[str, bytes]
REJECTED: Row = ("rejected",)
LEFT_OUT: Row = ("left out",)


class Bad(Exception):
    """A value that is missing or of the wrong type."""


PASSAGE, QUERY = ("passage_id", "_id", "id", "pid", "docid", "doc_id"), ("query_id", "_id", "id", "qid")
NEEDED = {
    "passages": {"id": PASSAGE, "text": ("text", "contents", "body", "passage")},
    "links": {"source": ("source",), "target": ("target",)},
    "queries": {"id": QUERY, "text": ("text", "query", "question")},
    "qrels": {
        "query": ("query_id", "query-id", "qid"),
        "passage": ("passage_id", "corpus-id", "pid", "docid", "doc_id"),
    },
    "answers": {"query": ("query_id", "query-id", "qid"), "answer": ("answer", "text")},
    "not_prose": {"id": PASSAGE, "kind": ("kind",)},
}
"""The columns that a table must have, and the names that each may have."""
OTHERS = {
    "passages": {
        "title": ("title",),
        "article_id": ("article_id",),
        "section": ("section",),
        "position": ("position",),
    },
    "links": {},
    "queries": {"origin": ("origin",)},
    "qrels": {"relevance": ("relevance", "score", "rel", "label"), "split": ("split",)},
    "answers": {"kind": ("kind",), "split": ("split",)},
    "not_prose": {},
}
SPLITS = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "val": "dev", "test": "test"}


def table_rows(files: Files) -> Iterator[Row]:
    made: set[str] = set()
    for table in NEEDED:
        for name in sorted(files):
            if name.split(".")[0] == table:
                for values in _values(files[name], table, name.rpartition(".")[2]):
                    yield _row(table, values, made)


def _values(data: bytes, table: str, suffix: str) -> Iterator[dict[str, Any] | None]:
    """Yield the rows of a table by the meaning of their columns; None for a rejected row."""
    if suffix == "parquet":
        try:
            whole = pq.read_table(io.BytesIO(data))
            columns = _columns(table, whole.column_names)
            rows = whole.to_pylist()
        except Refused:
            raise
        except Exception:
            raise Refused("no Parquet") from None
        for row in rows:
            yield {column: row[name] for column, name in columns.items()}
        return
    header: list[str] | None = None
    for cells in _rows_of(data, table, suffix):
        if cells is not None and header is None:
            header = cells
            columns = _columns(table, header)
        elif cells is None or len(cells) != len(header or ()):
            yield None
        else:
            assert header is not None
            yield {column: cells[header.index(name)] for column, name in columns.items()}


def _rows_of(data: bytes, table: str, suffix: str) -> list[list[str] | None]:
    """Return the rows by the delimiter of the suffix, or by the first other one that gives the needed columns."""
    read = [
        list(tab_rows(data) if delimiter == "\t" else quoting_rows(data, delimiter))
        for delimiter in (",;\t|" if suffix == "csv" else "\t,;|")
    ]
    headers = [next((row for row in rows if row is not None), []) for rows in read]
    for rows, header in zip(read, headers):
        try:
            _columns(table, header)
        except Refused:
            continue
        return rows
    if headers[0] or any(len(header) > 1 for header in headers):
        raise Refused("no columns")
    return read[0]  # every row of it is rejected


def _columns(table: str, present: list[str]) -> dict[str, str]:
    found = {}
    for column, names in (NEEDED[table] | OTHERS[table]).items():
        known = [name for name in names if name in present]
        if known:
            found[column] = known[0]
        elif column in NEEDED[table]:
            raise Refused(f"no column {column}")
    return found


def _row(table: str, values: dict[str, Any] | None, made: set[str]) -> Row:
    if values is None:
        return REJECTED
    try:
        if table == "passages":
            id = _id(values["id"])
            article = _text(values.get("article_id", id))
            rest = _text(values.get("section")), _position(values.get("position"))
            return ("passage", id, _text(values.get("title")), _needed(values["text"]), article, *rest)
        if table == "not_prose":
            if values["kind"] not in ("code", "table"):
                raise Bad
            return "notprose", _id(values["id"]), values["kind"]
        if table == "links":
            return "link", _id(values["source"]), _id(values["target"])
        if table == "queries":
            id, text = _id(values["id"]), _needed(values["text"])
            if _text(values.get("origin")) not in ("", "source"):
                made.add(id)
                return LEFT_OUT
            return "query", id, text
        query, split = _id(values["query"]), _split(_text(values.get("split")), table)
        if query in made:
            return LEFT_OUT
        if table == "qrels":
            return "qrel", query, _id(values["passage"]), _number(values.get("relevance", 1)), split
        return "answer", query, _needed(values["answer"]), _text(values.get("kind")) or "text", split
    except Bad:
        return REJECTED


def _id(value: Any) -> str:
    if type(value) not in (str, int):
        raise Bad
    return str(value)


def _needed(value: Any) -> str:
    if not isinstance(value, str):
        raise Bad
    return value


def _text(value: Any) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else _needed(value)


def _number(value: Any) -> str:
    """Return a number as text; a whole number without a fraction of zeros."""
    if isinstance(value, float) and value == value // 1:
        return f"{value:.0f}"
    whole, point, fraction = str(value).strip().partition(".")
    digits = whole.removeprefix(whole[:1]) if whole[:1] in ("+", "-") else whole
    is_whole = point and set(fraction) <= {"0"} and digits and set(digits) <= set("0123456789")
    return whole if is_whole else str(value)


def _position(value: Any) -> int:
    text = "0" if value is None else _number(value).strip()
    if not text or not set(text) <= set("0123456789") or len(text) > 9:
        raise Bad
    return int(text)


def _split(logged: str, table: str) -> str:
    if not logged and table == "answers":
        return ""
    if not logged:
        raise Refused("no split")
    words = "".join(letter if "a" <= letter <= "z" else " " for letter in logged.lower()).split()
    found = [SPLITS[word.removeprefix("doc")] for word in words if word.removeprefix("doc") in SPLITS]
    if not found:
        raise Bad
    return found[0]
