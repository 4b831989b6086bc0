"""Passages as JSON lines: the BEIR folder, and plain JSONL, where fields may have other names or no id."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.kept_fields import kept_fields
from stillhouse.corpus.sources.labels import labelled_lines
from stillhouse.corpus.sources.lines import (
    Fields,
    find_file,
    identifier,
    identifier_or_digest,
    made_of,
    read_objects,
    text_field,
)
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.rows import Passage, Row, Source
from stillhouse.corpus.sources.spans import Span
from stillhouse.corpus.sources.table_columns import COLUMNS

BEIR = "beir"
JSONL = "jsonl"
PASSAGE_ID = ("_id", "id", "passage_id")
TEXT = COLUMNS["passages"]["text"]


def open_beir(folder: Path, options: Options) -> Source:
    """A folder with `corpus.jsonl[.gz]` (_id, title, text), optionally `queries.jsonl[.gz]` and `qrels/<split>.tsv`."""
    path = find_file(folder, "corpus.jsonl")
    if path is None:
        raise InputError(f"{folder} has no corpus.jsonl or corpus.jsonl.gz, so it is not a BEIR folder")
    return _open(BEIR, path, options)


def open_jsonl(location: Path, options: Options) -> Source:
    """One `.jsonl[.gz]` file, or a folder with `passages.jsonl[.gz]`; may have queries and qrels beside it."""
    path = location if location.is_file() else find_file(location, "passages.jsonl")
    if path is None:
        raise InputError(f"{location} has no passages.jsonl or passages.jsonl.gz")
    return _open(JSONL, path, options)


def _open(format: str, path: Path, options: Options) -> Source:
    return labelled_lines(format, path, partial(_read_passages, format == BEIR, options.fields))


def _read_passages(with_ids: bool, names: tuple[str, ...], path: Path, span: Span) -> Iterator[Row]:
    def passage(fields: Fields) -> tuple[Passage]:
        named = next((name for name in TEXT if name in fields), TEXT[0])
        title, text = text_field(fields, "title", optional=True), text_field(fields, named)
        id = identifier(fields, PASSAGE_ID) if with_ids else identifier_or_digest(fields, PASSAGE_ID, title, text)
        if not text.strip():  # a document with only a title is read by its title, as in BEIR's own evaluation
            title, text = "", title
        # A passage without an article is its own article. Keyword arguments would be 50 % slower.
        return (Passage(id, title, text, id, "", 0, fields.where, kept_fields(names, fields)),)

    return made_of(read_objects(path, path.name, span), "passage", PASSAGE_ID, passage)
