"""The rows that every source yields, in this order: passages and links, then queries, then qrels; rejects anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

CONTENT_LENGTH = 200
"""Characters of a rejected row that are kept to recognise it by."""


class Passage(NamedTuple):
    """`position` counts from 0 within the article; `where` is `file:line` inside the source."""

    id: str
    title: str
    text: str
    article_id: str
    section: str
    position: int
    where: str


class Link(NamedTuple):
    source: str
    target: str
    where: str


class Query(NamedTuple):
    id: str
    text: str
    where: str


class Qrel(NamedTuple):
    """`relevance` is the text of the score column, as it stood in the file."""

    query_id: str
    passage_id: str
    relevance: str
    split: str
    where: str


class Rejected(NamedTuple):
    """A row that was not taken. `kind` is `passage`, `query`, `qrel`, `link`, or `line` when it could not be read."""

    kind: str
    id: str
    reason: str
    where: str
    content: str


Row = Passage | Link | Query | Qrel | Rejected


@dataclass(frozen=True)
class Source:
    """A source on the disk: its format, the files it reads (name inside the source → path) and its rows."""

    format: str
    files: dict[str, Path]
    rows: Callable[[], Iterator[Row]]
