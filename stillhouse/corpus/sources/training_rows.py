"""The rows of a training file, whatever its form: JSON lines, a JSON list, CSV, TSV or Parquet; and its columns: whose
format a row has, and the passages in its cells.

| tool | question | right passages | wrong passages |
|---|---|---|---|
| FlagEmbedding | `query` | `pos`: texts | `neg` |
| Tevatron | `query_id`, `query` | `positive_passages`: `docid`, `title`, `text` | `negative_passages` |
| sentence-transformers | `anchor`, `query`, `question` | `positive`, `answer`: a text | `negative`, `negative_1`, … |
| SQuAD in `datasets` | `question` | `context`: a text, whatever `answers` says | |
| DPR | `question` | `positive_ctxs`: `passage_id`, `title`, `text` | `hard_negative_ctxs`, `negative_ctxs` |
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources import json_files
from stillhouse.corpus.sources.cells import DELIMITERS, header_of, read_named_cells
from stillhouse.corpus.sources.dpr import PREFIX
from stillhouse.corpus.sources.lines import (
    DAMAGED,
    Fields,
    IllTyped,
    identifier_or_digest,
    in_any_case,
    placed,
    text_field,
    text_id,
)
from stillhouse.corpus.sources.parquet_rows import open_parquet
from stillhouse.corpus.sources.rows import CONTENT_LENGTH, Rejected

QUERY_ID = ("query_id", "qid", "id", "_id")
PASSAGE_ID = ("docid", "doc_id", "passage_id", "psg_id", "id", "_id")
QUERY = ("anchor", "query", "question")
POSITIVES = ("pos", "positive_passages", "positive", "positives", "positive_ctxs", "context", "answer")
NEGATIVES = ("neg", "negative_passages", "hard_negative_ctxs", "negative_ctxs", "negative", "negatives")
PASSAGE_TEXT = "text"
"""A row with this column is a passage, whatever else it has."""
_NUMBERED = re.compile(r"neg(?:ative)?_?[0-9]+")
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".jsonl.gz", ".json.gz", ".csv.gz", ".tsv.gz")
_HEAD = 8
"""Rows in which the columns of a JSON file are looked for; rows may lack some."""
_AT_ONCE = 256
"""Rows of a Parquet file that are decoded together: each may have a hundred passages."""


@dataclass(frozen=True)
class Columns:
    """The names of a file's columns; `query_id` is empty if there is none."""

    query: str
    positives: str
    negatives: tuple[str, ...]
    query_id: str


def find_columns(names: Iterable[str]) -> Columns | None:
    """The columns of a training file, in any case, or None if these names are not such a file's."""
    known = in_any_case(names)
    query, positives, query_id = (
        next((known[name] for name in wanted if name in known), "") for wanted in (QUERY, POSITIVES, QUERY_ID)
    )
    if not query or not positives or PASSAGE_TEXT in known:
        return None
    negatives = [name for name in (*NEGATIVES, *filter(_NUMBERED.fullmatch, known)) if name in known]
    return Columns(query, positives, tuple(known[name] for name in negatives), query_id)


class Given(NamedTuple):
    """A passage of a training file."""

    id: str
    title: str
    text: str


def passages_in(fields: Mapping[str, Any], names: Iterable[str]) -> list[Given]:
    """The passages of some columns: texts, objects with a text, or lists of these; blank texts stand for no passage.

    Raises `IllTyped`.
    """
    values = [(name, fields[name]) for name in names if fields.get(name) is not None]
    each = [(name, item) for name, value in values for item in (value if isinstance(value, list) else [value])]
    return [_passage(item, name) for name, item in each if not (isinstance(item, str) and not item.strip())]


def _passage(value: object, name: str) -> Given:
    if isinstance(value, str):
        return Given(text_id(value), "", value)
    if not isinstance(value, Mapping):
        raise IllTyped(f"{name} holds neither texts nor passages with a text")
    known: Fields = placed({key: each for key, each in value.items() if each is not None})
    title, text = text_field(known, "title", optional=True), text_field(known, PASSAGE_TEXT)
    id = identifier_or_digest(known, PASSAGE_ID, title, text)
    return Given(id.removeprefix(PREFIX), title, text)


def columns_of(path: Path) -> Columns | None:
    """The columns of a training file, or None for a file of another kind."""
    try:
        if path.suffix == ".parquet":
            with open_parquet(path) as opened:
                return find_columns(opened.schema_arrow.names)
        if _is_delimited(path):
            return next(filter(None, (find_columns(header_of(path, path.name, each)) for each in DELIMITERS)), None)
        names = {
            name: None
            for row in islice(json_files.read_rows(path, path.name), _HEAD)
            if isinstance(row, Fields)
            for name in row
        }
        return find_columns(names)
    except (InputError, pa.ArrowException, OSError, ValueError, *DAMAGED):
        return None  # the reader of its format reports the damage


def read_rows(path: Path) -> Iterator[Fields | Rejected]:
    """The rows of a training file, each with its place."""
    if path.suffix == ".parquet":
        yield from _parquet(path)
    elif _is_delimited(path):
        yield from _delimited(path)
    else:
        yield from json_files.read_rows(path, path.name)


def _is_delimited(path: Path) -> bool:
    return path.name.endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz"))


def _delimited(path: Path) -> Iterator[Fields | Rejected]:
    delimiter = next(each for each in DELIMITERS if find_columns(header_of(path, path.name, each)))
    for row in read_named_cells(path, path.name, delimiter, "query"):
        if isinstance(row, Rejected):
            yield row
        else:  # a row with fewer negatives than another has empty cells
            yield placed({name: cell for name, cell in row.items() if cell}, row.where, row.text)


def _parquet(path: Path) -> Iterator[Fields | Rejected]:
    number = 0
    try:
        with open_parquet(path) as opened:
            for batch in opened.iter_batches(_AT_ONCE):
                rows: list[dict[str, Any]] = batch.to_pylist()
                for row in rows:
                    number += 1
                    yield placed(row, f"{path.name}:{number}", str(row)[:CONTENT_LENGTH])
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is damaged after row {number:,} ({error}); fetch the file again") from None
