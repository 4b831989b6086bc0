"""The rows that every source yields, in any order: passages, links, queries, qrels, answers and rejected rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

CONTENT_LENGTH = 200
"""Characters that are kept of a rejected row, and of its id, to recognise it."""


Value = bool | int | float | str | list[str]
"""What a field of a passage may hold."""


class Passage(NamedTuple):
    """`position` counts from 0 within the article; `where` is `file:line` inside the source.

    `fields` are other facts about the passage, such as its page, a product or a date: `{"page": 3}`.
    """

    id: str
    title: str
    text: str
    article_id: str
    section: str
    position: int
    where: str
    fields: Mapping[str, Value] | None = None


CODE, TABLE = "code", "table"
NOT_PROSE = (CODE, TABLE)


class NotProse(NamedTuple):
    """Marks a passage as code or a table: it is searched like any other, but no question is made from it.

    `kind` is one of `NOT_PROSE`.
    """

    id: str
    kind: str
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
    """`relevance` is the unchanged text of the score column."""

    query_id: str
    passage_id: str
    relevance: str
    split: str
    where: str


class Answer(NamedTuple):
    """A text that a passage must contain to answer a query: `kind` is `text` or `regex` (`stillhouse.corpus.answers`).

    `split` is the file's split, or "" if only the query's qrels say its split.
    """

    query_id: str
    text: str
    kind: str
    split: str
    where: str


class Rejected(NamedTuple):
    """A row that was rejected. `kind` is the kind of row, or `line` if it could not be read."""

    kind: str
    id: str
    reason: str
    where: str
    content: str


class LeftOut(NamedTuple):
    """A valid row that is not needed. It is only counted, by its reason."""

    kind: str
    reason: str


Row = Passage | NotProse | Link | Query | Qrel | Answer | Rejected | LeftOut

Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function for each item, perhaps in several processes, and yields the results in order."""


@dataclass(frozen=True)
class Part:
    """Rows of a source that a separate process can read by calling `read`.

    Every row then passes through `finish`, in this process and in order, for work that involves other parts.
    """

    read: Callable[[], Iterable[Row]]
    finish: Callable[[Row], Row] = lambda row: row

    def then(self, finish: Callable[[Row], Row]) -> Part:
        """The same rows, with another function applied to each."""
        before = self.finish
        return Part(self.read, lambda row: finish(before(row)))


Parts = Callable[[int, Each], Iterable[Part]]
"""Divides a source into parts of about the given size in bytes."""


@dataclass(frozen=True)
class Source:
    """A source: its format, the files it reads (name inside the source → path) and its rows, in parts.

    `identity` distinguishes a source without files from others. `candidates` says that each passage is a sentence (its
    title) with the passage around it (its text), as in ReQA. `cells` says that its fields are texts, which may stand
    for numbers. `notes` are remarks about its files.
    """

    format: str
    files: dict[str, Path]
    parts: Parts
    identity: str = ""
    candidates: bool = False
    cells: bool = False
    notes: tuple[str, ...] = ()

    def rows(self) -> Iterator[Row]:
        """The rows of all parts in order, read in this process."""
        for part in self.parts(sys.maxsize, map):
            yield from map(part.finish, part.read())


def whole(read: Callable[[], Iterable[Row]]) -> Parts:
    """The only part of a source that one process reads."""
    return lambda size, each: [Part(read)]
