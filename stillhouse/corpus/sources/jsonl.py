"""JSON lines: passages (the BEIR folder, and plain JSONL, where fields may have other names or no id), or articles:
`_id`, `title`, `sections` [{heading, level, paragraphs}], `links` [_id].
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from stillhouse.corpus.sources.labels import labelled_lines
from stillhouse.corpus.sources.lines import (
    Fields,
    IllTyped,
    identifier,
    identifier_or_digest,
    list_field,
    made_of,
    object_of,
    read_objects,
    required_file,
    text_field,
)
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.rows import CONTENT_LENGTH, Link, Passage, Rejected, Row, Source
from stillhouse.corpus.sources.spans import Span
from stillhouse.corpus.sources.table_columns import COLUMNS, kept_fields
from stillhouse.corpus.sources.tables import optional, position_of

BEIR = "beir"
JSONL = "jsonl"
PASSAGE_ID = ("_id", "id", "passage_id")
TEXT = COLUMNS["passages"]["text"]
ARTICLE_JSONL = "article-jsonl"
ARTICLE_ID = ("_id", "id")


def open_beir(folder: Path, options: Options) -> Source:
    """A folder with `corpus.jsonl[.gz]` (_id, title, text), optionally `queries.jsonl[.gz]` and `qrels/<split>.tsv`."""
    return labelled_lines(BEIR, required_file(folder, "corpus.jsonl"), partial(_read_passages, True, options.fields))


def open_jsonl(location: Path, options: Options) -> Source:
    """One `.jsonl[.gz]` file, or a folder with `passages.jsonl[.gz]`; may have queries and qrels beside it."""
    path = location if location.is_file() else required_file(location, "passages.jsonl")
    return labelled_lines(JSONL, path, partial(_read_passages, False, options.fields))


def _read_passages(with_ids: bool, names: tuple[str, ...], path: Path, span: Span) -> Iterator[Row]:
    def passage(fields: Fields) -> tuple[Passage]:
        named = next((name for name in TEXT if name in fields), TEXT[0])
        title, text = text_field(fields, "title", optional=True), text_field(fields, named)
        others = (name for name in ("pid", "docid") if fields.get(name) is not None)
        ids = PASSAGE_ID if "_id" in fields else (*PASSAGE_ID, *others)
        id = identifier(fields, ids) if with_ids else identifier_or_digest(fields, ids, title, text)
        if not text.strip():  # a document with only a title is read by its title, as in BEIR's own evaluation
            title, text = "", title
        kept = kept_fields(names, fields)
        if isinstance(article := fields.get("article_id"), str | int) and article != "":
            of = str(article), optional(fields, "section"), position_of(fields)
            return (Passage(id, title, text, *of, fields.where, kept),)
        # A passage without an article is its own article. Keyword arguments would be 50 % slower.
        return (Passage(id, title, text, id, "", 0, fields.where, kept),)

    return made_of(read_objects(path, path.name, span), "passage", PASSAGE_ID, passage)


def open_article_jsonl(location: Path, options: Options) -> Source:
    """A `.jsonl[.gz]` file of articles or a folder with `articles.jsonl[.gz]`; may have queries and qrels beside it."""
    path = location if location.is_file() else required_file(location, "articles.jsonl")
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
