"""Writes passages and questions in memory as the tables that `ingest` reads (docs/reference/formats.md, `tables`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.config import read_as
from stillhouse.core.errors import InputError

PassageRow = Mapping[str, Any]
QuestionRow = Mapping[str, Any]
Id = str | int


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A row of `passages`."""

    text: str
    id: Id | None = None
    title: str = ""
    article_id: Id | None = None
    section: str = ""
    position: int | None = None
    fields: Any = None


@dataclass(frozen=True, kw_only=True)
class Question:
    """A row of `questions`; `relevant` are ids of passages, or grades by id, which they become."""

    text: str
    relevant: Any
    id: Id | None = None
    split: str = "train"

    def __post_init__(self) -> None:
        if self.split not in ("train", "dev", "test"):
            raise InputError(f"split is {self.split!r}; write train, dev or test")
        if isinstance(self.relevant, str) or not isinstance(self.relevant, Iterable):
            raise InputError("relevant must be a list of passage ids or a dict of id to grade")
        grades = dict(self.relevant) if isinstance(self.relevant, Mapping) else dict.fromkeys(self.relevant, 1)
        if not grades:
            raise InputError("relevant is empty; name at least one passage, or leave the question out")
        for passage, grade in grades.items():
            if type(passage) not in (str, int) or type(grade) is not int:
                raise InputError(f"a grade must be a whole number of an id, not {passage!r}: {grade!r}")
        object.__setattr__(self, "relevant", grades)


def write_rows(folder: str, passages: Iterable[str | PassageRow], questions: Iterable[QuestionRow]) -> None:
    """Write `passages.parquet`, `fields.parquet` if a passage has fields and, if there are questions, `queries.parquet`
    and `qrels.parquet`.

    Raises `InputError`, which names the row, for an unknown or missing key and for a value of the wrong type.
    """
    from stillhouse.corpus.fields import FieldsFile, fields_as_text  # imports pyarrow

    for given, what in ((passages, "passages"), (questions, "questions")):
        if isinstance(given, (str, Mapping)):
            raise InputError(f"{what} must be a list; pass a single row as [row]")
    rows, fields = _passages(passages)
    _write(folder, "passages", rows)
    table = FieldsFile(None)
    table.write(fields_as_text(fields))
    table.close()
    table.write_typed(Path(folder))
    queries, qrels = _questions(questions)
    if queries:
        _write(folder, "queries", queries)
        _write(folder, "qrels", qrels)


def _passages(passages: Iterable[str | PassageRow]) -> tuple[list[dict[str, Any]], list[Mapping[str, Any] | None]]:
    rows: list[dict[str, Any]] = []
    fields: list[Mapping[str, Any] | None] = []
    seen = Counter[str]()
    for number, given in enumerate(passages):
        row = read_as(Passage, {"text": given} if isinstance(given, str) else given, f"passage {number}")
        id = str(number if row.id is None else row.id)
        article = id if row.article_id is None else str(row.article_id)
        own = {"id": id, "text": row.text, "article_id": article, "title": row.title, "section": row.section}
        rows.append(own | {"position": seen[article] if row.position is None else row.position})
        seen[article] += 1
        if row.fields is not None and not isinstance(row.fields, Mapping):
            raise InputError(f"passage {number}: fields must be a dict, such as {{'product': 'vpn'}}")
        fields.append(row.fields)
    if not rows:
        raise InputError("there are no passages; give at least one text or dict")
    return rows, fields


def _questions(questions: Iterable[QuestionRow]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    queries, qrels = [], []
    for number, given in enumerate(questions):
        row = read_as(Question, given, f"question {number}")
        id = str(number if row.id is None else row.id)
        queries.append({"id": id, "text": row.text})
        for passage, grade in row.relevant.items():
            qrels.append({"query_id": id, "passage_id": str(passage), "relevance": grade, "split": row.split})
    return queries, qrels


def _write(folder: str, name: str, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), Path(folder) / f"{name}.parquet")
