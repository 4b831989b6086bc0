"""Training files, whatever their form: JSON lines, a JSON list, CSV, TSV or Parquet. Each row is a question with its
passages, in one of these formats:

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
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources import json_files
from stillhouse.corpus.sources.cells import DELIMITERS, header_of, read_named_cells
from stillhouse.corpus.sources.dpr import PREFIX, query_id
from stillhouse.corpus.sources.lines import (
    DAMAGED,
    Fields,
    IllTyped,
    identifier,
    identifier_or_digest,
    in_any_case,
    placed,
    spaceless,
    text_field,
    text_id,
)
from stillhouse.corpus.sources.parquet_rows import open_parquet
from stillhouse.corpus.sources.rows import (
    CONTENT_LENGTH,
    LeftOut,
    Passage,
    Qrel,
    Query,
    Rejected,
    Row,
    Source,
    split_in,
    whole,
)
from stillhouse.corpus.sources.table_columns import SUFFIXES, suffix_of

QUERY_ID = ("query_id", "qid", "id", "_id")
PASSAGE_ID = ("docid", "doc_id", "passage_id", "psg_id", "id", "_id")
QUERY = ("anchor", "query", "question")
POSITIVES = (
    "pos",
    "positive_passages",
    "positive",
    "positives",
    "positive_ctxs",
    "context",
    "passage",
    "document",
    "answer",
)
NEGATIVES = ("neg", "negative_passages", "hard_negative_ctxs", "negative_ctxs", "negative", "negatives")
PASSAGE_TEXT = "text"
"""A row with this column is a passage, whatever else it has."""
_NUMBERED = re.compile(r"neg(?:ative)?_?[0-9]+")
_HEAD = 8
"""Rows in which the columns of a JSON file are looked for; rows may lack some."""
_AT_ONCE = 256
"""Rows of a Parquet file that are decoded together: each may have a hundred passages."""
TRAINING = "training"


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
    return path.name.lower().endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz"))


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


def open_training(location: Path) -> Source:
    """A training file, or a folder of such files, in the folder itself or in its `data/`.

    A file's name says its split; without one it is train. Questions of a split with the same text are one question. The
    passages are those of all rows: first the right ones, then the wrong ones, which are judged with the grade 0.
    """
    files = training_files(location)
    if not files:
        raise InputError(
            f"{location} has no training file: one of {', '.join(SUFFIXES)} with columns such as query, pos and neg, "
            "or anchor, positive and negative"
        )
    if location.is_dir():
        _refuse_others(location, files)
    return Source(TRAINING, {path.name: path for path in files}, whole(partial(_read, files)))


def training_files(location: Path) -> dict[Path, Columns]:
    """The training files of a folder, or the file itself, with their columns; {} if there are none."""
    found = {path: columns for path in _candidates(location) if (columns := columns_of(path))}
    if not found and location.is_dir() and (location / "data").is_dir():
        return training_files(location / "data")
    return found


def _candidates(location: Path) -> list[Path]:
    paths = sorted(location.iterdir()) if location.is_dir() else [location]
    return [path for path in paths if path.is_file() and suffix_of(path)]


def _refuse_others(location: Path, files: Mapping[Path, Columns]) -> None:
    """Refuses a file beside the training files that is data too, but cannot be read as they are."""
    folder = next(iter(files)).parent
    others = [path for path in _candidates(folder) if path not in files and ".json" not in path.suffixes]
    if others:
        raise InputError(
            f"{others[0]} has not the columns of a training file, as {next(iter(files)).name} has; move it away, or "
            f"name a single file of {location}"
        )


def _read(files: Mapping[Path, Columns]) -> Iterator[Row]:
    taken: set[int] = set()
    asked: dict[tuple[str, str], str] = {}
    text_of: dict[str, tuple[str, str]] = {}
    named: set[int] = set()
    for path, columns in files.items():
        split = split_in(path.name) or "train"
        for number, row in enumerate(read_rows(path)):
            if isinstance(row, Rejected):
                yield row
                continue
            try:
                id, text, given = _question(path, number, row, columns)
                if (split, text) not in asked:
                    if text_of.setdefault(id, (path.name, text))[0] != path.name:
                        id = f"{spaceless(path.name)}-{id}"  # each file numbers its own questions
                    if text_of.setdefault(id, (path.name, text))[1] != text:
                        raise IllTyped("duplicate id, different text")
            except IllTyped as reason:
                yield Rejected("query", "", str(reason), row.where, row.content)
                continue
            if (split, text) not in asked:
                asked[split, text] = id
                yield Query(id, text, row.where)
            yield from _passages(given, row.where, taken)
            for passage in given:
                pair = asked[split, text], passage.id
                if (key := hash(pair)) not in named:
                    named.add(key)
                    yield Qrel(*pair, "1", split, row.where)
    yield from _read_wrong(files, taken, asked, named)


def _read_wrong(
    files: Mapping[Path, Columns], taken: set[int], asked: Mapping[tuple[str, str], str], named: set[int]
) -> Iterator[Row]:
    """The wrong passages, which come last: a passage may be right for the same question in another row."""
    for path, columns in files.items():
        split = split_in(path.name) or "train"
        for row in read_rows(path) if columns.negatives else ():
            if isinstance(row, Rejected) or not isinstance(text := row.get(columns.query), str):
                continue  # the first reading rejected it
            if (id := asked.get((split, text))) is None:
                continue
            try:
                given = passages_in(row, columns.negatives)
            except IllTyped as reason:
                yield Rejected("qrel", id, str(reason), row.where, row.content)
                continue
            yield from _passages(given, row.where, taken)
            for passage in given:
                if (key := hash((id, passage.id))) in named:
                    yield LeftOut("qrel", "the question has named its passage before")
                else:
                    named.add(key)
                    yield Qrel(id, passage.id, "0", split, row.where)


def _question(path: Path, number: int, row: Fields, columns: Columns) -> tuple[str, str, list[Given]]:
    """The id, the text and the right passages of a row. Raises `IllTyped`."""
    text = text_field(row, columns.query)
    known = columns.query_id and row.get(columns.query_id) is not None
    id = identifier(row, (columns.query_id,)) if known else query_id(path, number)
    given = passages_in(row, (columns.positives,))
    if not given:
        raise IllTyped(f"no {columns.positives}")
    return id, text, given


def _passages(given: list[Given], where: str, taken: set[int]) -> Iterator[Passage]:
    """The passages that are new: the same one may be right or wrong for any number of questions."""
    for passage in given:
        key = hash((passage.id, passage.text))
        if key not in taken:
            taken.add(key)
            yield Passage(passage.id, passage.title, passage.text, passage.id, "", 0, where)
