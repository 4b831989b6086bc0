"""Articles as JSON lines: `_id`, `title`, `sections` [{heading, level, paragraphs}], `links` [_id]."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.kept_fields import kept_fields
from stillhouse.corpus.sources.labels import labelled_lines
from stillhouse.corpus.sources.lines import (
    Fields,
    IllTyped,
    find_file,
    identifier,
    list_field,
    made_of,
    object_of,
    read_objects,
    text_field,
)
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.rows import (
    CONTENT_LENGTH,
    Link,
    Passage,
    Rejected,
    Row,
    Source,
)
from stillhouse.corpus.sources.spans import Span

ARTICLE_JSONL = "article-jsonl"
ARTICLE_ID = ("_id", "id")


def open_article_jsonl(location: Path, options: Options) -> Source:
    """A `.jsonl[.gz]` file of articles or a folder with `articles.jsonl[.gz]`; may have queries and qrels beside it."""
    path = location if location.is_file() else find_file(location, "articles.jsonl")
    if path is None:
        raise InputError(f"{location} has no articles.jsonl or articles.jsonl.gz")
    return labelled_lines(ARTICLE_JSONL, path, partial(_read_articles, options.fields))


def _read_articles(names: tuple[str, ...], path: Path, span: Span) -> Iterator[Row]:
    rows = read_objects(path, path.name, span)
    return made_of(rows, "passage", ARTICLE_ID, lambda fields: list(_article_rows(names, fields)))


def _article_rows(names: tuple[str, ...], fields: Fields) -> Iterator[Row]:
    """The paragraphs of an article, each a passage `<id>#<k>`, and its links. Raises `IllTyped` for a wrong shape."""
    id, kept = identifier(fields, ARTICLE_ID), kept_fields(names, fields)
    title = text_field(fields, "title", optional=True)
    position = 0
    for section in list_field(fields, "sections"):
        part = object_of(section, "a section is ")
        heading = text_field(part, "heading", optional=True)
        for paragraph in list_field(part, "paragraphs"):
            passage_id = f"{id}#{position + 1}"
            if isinstance(paragraph, str):
                yield Passage(passage_id, title, paragraph, id, heading, position, fields.where, kept)
            else:
                content = str(paragraph)[:CONTENT_LENGTH]
                yield Rejected("passage", passage_id, "paragraph is not text", fields.where, content)
            position += 1
    if position == 0:
        raise IllTyped("article without a paragraph")
    for target in list_field(fields, "links", optional=True):
        if not isinstance(target, str):
            raise IllTyped("a link is not text")
        yield Link(id, target, fields.where)
