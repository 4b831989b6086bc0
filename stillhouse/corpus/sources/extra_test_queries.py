"""Extra labelled test queries for a source with none or few: `queries.jsonl` and `qrels/test.tsv`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.labels import find_labels, read_labels
from stillhouse.corpus.sources.rows import Each, Part, Row, Source

PLACE = "test_queries"
"""The prefix of these queries' file names in `rejected.parquet`."""


def with_test_queries(source: Source, folder: Path) -> Source:
    """The source with the labelled test queries of `folder` (BEIR layout) after its own rows.

    Raises `InputError` if the folder lacks one of the two files.
    """
    labels = find_labels(folder, "test")
    if len(labels) < 2:
        raise InputError(
            f"test_queries: {folder} must be a folder with queries.jsonl (_id, text) and qrels/test.tsv (query-id, "
            "corpus-id, score), each also with .gz"
        )

    def rows() -> Iterator[Row]:
        yield from source.rows()
        yield from _read(labels)

    def parts(size: int, each: Each) -> list[Part]:
        assert source.parts is not None
        return [*source.parts(size, each), Part(partial(_read, labels))]

    files = source.files | {f"{PLACE}/{name}": path for name, path in labels.items()}
    return dataclasses.replace(source, files=files, rows=rows, parts=parts if source.parts else None)


def _read(labels: dict[str, Path]) -> Iterator[Row]:
    for row in read_labels(labels):
        yield row._replace(where=f"{PLACE}/{row.where}")
