"""Documents that add, replace and delete passages of a source: a folder that `stillhouse documents export` wrote."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from stillhouse.corpus.sources.lines import Fields, IllTyped, identifier, read_objects, shown_id, text_field
from stillhouse.corpus.sources.rows import LeftOut, NotProse, Passage, Rejected, Row, Source
from stillhouse.errors import InputError

PLACE = "documents"
"""The prefix of these files' names in `rejected.parquet` and in the digest of a source."""
CORPUS, DELETED = "corpus.jsonl", "deleted.jsonl"
"""The documents (_id, title, text, and article if they have one), and the ids to delete (_id)."""
ID = ("_id",)
REPLACED = LeftOut("passage", "replaced by a document")
GONE = LeftOut("passage", "deleted by the documents")
T = TypeVar("T")


def with_documents(source: Source, folder: Path) -> Source:
    """The source without the passages that the documents of `folder` replace or delete, then the documents.

    A document of an article comes after the passages of the article; one that replaces a passage of the same article
    takes its section and position. Raises `InputError` if the folder lacks a file, and for ReQA candidates.
    """
    if source.candidates:
        raise InputError("documents cannot join ReQA candidates, which are sentences of passages; leave documents out")
    files = document_files(folder)

    def rows() -> Iterator[Row]:
        added = list(read_documents(files[CORPUS]))
        documents = [row for row in added if isinstance(row, Passage)]
        deleted = list(read_deleted(files[DELETED]))
        yield from (row for row in (*added, *deleted) if isinstance(row, Rejected))
        put, gone = {row.id for row in documents}, {row for row in deleted if isinstance(row, str)}
        articles, places = {row.article_id for row in documents}, dict[str, Passage]()
        ends: defaultdict[str, int] = defaultdict(int)
        for row in source.rows():
            if isinstance(row, Passage):
                if row.article_id in articles:
                    ends[row.article_id] = max(ends[row.article_id], row.position + 1)
                if row.id in put:
                    places.setdefault(row.id, row)
                    yield REPLACED
                    continue
                if row.id in gone:
                    yield GONE
                    continue
            elif isinstance(row, NotProse) and row.id in put:
                continue  # it says what the replaced passage was
            yield row
        for document in documents:
            article, old = document.article_id, places.pop(document.id, None)
            if old and old.article_id == article:
                yield document._replace(section=old.section, position=old.position)
            else:
                yield document._replace(position=ends[article])
                ends[article] += 1

    named = {f"{PLACE}/{name}": path for name, path in files.items()}
    return dataclasses.replace(source, files=source.files | named, rows=rows, parts=None)


def document_files(folder: Path) -> dict[str, Path]:
    """The two files of a folder, by name. Raises `InputError` if one of them is missing."""
    files = {name: folder / name for name in (CORPUS, DELETED)}
    if not all(path.is_file() for path in files.values()):
        raise InputError(
            f"documents: {folder} must be a folder with {CORPUS} and {DELETED}, as `stillhouse documents export` "
            "writes it"
        )
    return files


def read_documents(path: Path) -> Iterator[Passage | Rejected]:
    """The documents, each its own article unless it names one; what cannot be read is a `Rejected`."""

    def document(fields: Fields) -> Passage:
        id = identifier(fields, ID)
        title, article = text_field(fields, "title", optional=True), text_field(fields, "article", optional=True)
        return Passage(id, title, text_field(fields, "text"), article or id, "", 0, fields.where)

    return _read(path, document)


def read_deleted(path: Path) -> Iterator[str | Rejected]:
    """The ids to delete; what cannot be read is a `Rejected`."""
    return _read(path, lambda fields: identifier(fields, ID))


def _read(path: Path, convert: Callable[[Fields], T]) -> Iterator[T | Rejected]:
    if not path.stat().st_size:  # a log without documents, or without deletions, leaves an empty file
        return
    for fields in read_objects(path, f"{PLACE}/{path.name}"):
        if isinstance(fields, Rejected):
            yield fields
            continue
        try:
            yield convert(fields)
        except IllTyped as reason:
            yield Rejected("passage", shown_id(fields, ID), str(reason), fields.where, fields.content)
