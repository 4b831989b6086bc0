"""Writes passages and questions in memory as the tables that `ingest` reads (docs/reference/formats.md, `tables`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stillhouse.config import nearest
from stillhouse.errors import InputError

PassageRow = Mapping[str, Any]
QuestionRow = Mapping[str, Any]

PASSAGE_KEYS = ("id", "title", "text", "article_id", "section", "position")
QUESTION_KEYS = ("id", "text", "relevant", "split")


def write_rows(folder: str, passages: Iterable[str | PassageRow], questions: Iterable[QuestionRow]) -> None:
    """Write `passages.parquet` and, if there are questions, `queries.parquet` and `qrels.parquet`.

    Raises `InputError`, which names the row, for an unknown or missing key and for a value of the wrong type.
    """
    _write(folder, "passages", _passages(passages))
    queries, qrels = _questions(questions)
    if queries:
        _write(folder, "queries", queries)
        _write(folder, "qrels", qrels)


def _passages(passages: Iterable[str | PassageRow]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    seen = Counter[str]()
    for number, given in enumerate(_several(passages, "passages")):
        where = f"passage {number}"
        row = {"text": given} if isinstance(given, str) else _known(given, PASSAGE_KEYS, where)
        id = _id(row.get("id", number), where)
        article = _id(row.get("article_id", id), where)
        texts = {name: _text(row.get(name, ""), f"{where}: {name}") for name in ("title", "section")}
        position = _whole(row.get("position", seen[article]), f"{where}: position")
        rows.append({"id": id, "text": _text(row.get("text"), f"{where}: text"), "article_id": article} | texts)
        rows[-1]["position"] = position
        seen[article] += 1
    if not rows:
        raise InputError("there are no passages; give at least one text or dict")
    return rows


def _questions(questions: Iterable[QuestionRow]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    queries, qrels = [], []
    for number, given in enumerate(_several(questions, "questions")):
        where = f"question {number}"
        row = _known(given, QUESTION_KEYS, where)
        id, split = _id(row.get("id", number), where), row.get("split", "train")
        if split not in ("train", "dev", "test"):
            raise InputError(f"{where}: split is {split!r}; write train, dev or test")
        relevant = row.get("relevant")
        if isinstance(relevant, str) or not isinstance(relevant, Iterable):
            raise InputError(f"{where}: relevant must be a list of passage ids or a dict of id to grade")
        grades = dict(relevant) if isinstance(relevant, Mapping) else dict.fromkeys(relevant, 1)
        if not grades:
            raise InputError(f"{where}: relevant is empty; name at least one passage, or leave the question out")
        queries.append({"id": id, "text": _text(row.get("text"), f"{where}: text")})
        qrels += [
            {
                "query_id": id,
                "passage_id": _id(passage, where),
                "relevance": _whole(grade, f"{where}: a grade"),
                "split": split,
            }
            for passage, grade in grades.items()
        ]
    return queries, qrels


def _several(rows: Iterable[Any], what: str) -> Iterable[Any]:
    if isinstance(rows, (str, Mapping)):
        raise InputError(f"{what} must be a list; pass a single row as [row]")
    return rows


def _known(row: Any, keys: tuple[str, ...], where: str) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise InputError(f"{where} must be a dict, not {type(row).__name__}")
    for key in row:
        if key not in keys:
            raise InputError(f"{where}: unknown key {key!r}; {nearest(str(key), keys)}")
    return row


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where} must be text, not {type(value).__name__}")
    return value


def _id(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InputError(f"{where}: an id must be text or a whole number, not {value!r}")
    return str(value)


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{where} must be a whole number, not {value!r}")
    return value


def _write(folder: str, name: str, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), Path(folder) / f"{name}.parquet")
