"""Reads the rows of a training file, whatever its form: JSON lines, a JSON list, CSV, TSV or Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources import json_files
from stillhouse.corpus.sources.cells import DELIMITERS, header_of, read_named_cells
from stillhouse.corpus.sources.lines import DAMAGED, Fields, placed
from stillhouse.corpus.sources.parquet_rows import open_parquet
from stillhouse.corpus.sources.rows import CONTENT_LENGTH, Rejected
from stillhouse.corpus.sources.training_columns import Columns, find_columns

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".jsonl.gz", ".json.gz", ".csv.gz", ".tsv.gz")
_HEAD = 8
"""Rows in which the columns of a JSON file are looked for; rows may lack some."""
_AT_ONCE = 256
"""Rows of a Parquet file that are decoded together: each may have a hundred passages."""


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
