"""Extra labelled dev or test queries for a source with none or few: `queries.jsonl` and `qrels/<split>.tsv`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stillhouse.corpus.sources.labels import labels_in, read_labels
from stillhouse.corpus.sources.rows import Each, Part, Row, Source

PLACES = {"dev_queries": "dev", "test_queries": "test"}
"""The settings that name such folders, with their split; also the prefixes of these queries' file names in
`rejected.parquet`."""


def with_queries(source: Source, place: str, folder: Path) -> Source:
    """The source with the labelled queries of `folder` (BEIR layout) after its own rows.

    Raises `InputError` if the folder lacks one of the two files.
    """
    labels = labels_in(place, folder, PLACES[place])

    def parts(size: int, each: Each) -> list[Part]:
        return [*source.parts(size, each), Part(partial(_read, place, labels))]

    files = source.files | {f"{place}/{name}": path for name, path in labels.items()}
    return dataclasses.replace(source, files=files, parts=parts)


def _read(place: str, labels: dict[str, Path]) -> Iterator[Row]:
    for row in read_labels(labels):
        yield row._replace(where=f"{place}/{row.where}")
