"""The rows that every source yields: passages and links in any order, queries, qrels and answers; rejects anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

CONTENT_LENGTH = 200
"""Characters of a rejected row, and of its id, that are kept to recognise it by."""


class Passage(NamedTuple):
    """`position` counts from 0 within the article; `where` is `file:line` inside the source."""

    id: str
    title: str
    text: str
    article_id: str
    section: str
    position: int
    where: str


CODE, TABLE = "code", "table"
NOT_PROSE = (CODE, TABLE)


class NotProse(NamedTuple):
    """A passage is code or a table: it is searched as any other, and no question is made of it.

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
    """`relevance` is the text of the score column, as it stood in the file."""

    query_id: str
    passage_id: str
    relevance: str
    split: str
    where: str


class Answer(NamedTuple):
    """A text that a passage must contain to answer a query: `kind` is `text` or `regex` (`stillhouse.corpus.answers`).

    `split` is that of the file, "" where the query's qrels alone say its split.
    """

    query_id: str
    text: str
    kind: str
    split: str
    where: str


class Rejected(NamedTuple):
    """A row that was not taken. `kind` is the kind of row, or `line` when it could not be read."""

    kind: str
    id: str
    reason: str
    where: str
    content: str


class Begins(NamedTuple):
    """The next `rows` rows are those of an article. Where an earlier part of the source has an article of the same id,
    they count as one `Rejected` of this reason, place and content. One that is not `sound` is no such earlier article.

    A reader yields such rows for a part of a file alone: of a whole file it knows the earlier articles by itself.
    """

    id: str
    rows: int
    sound: bool
    reason: str
    where: str
    content: str


class LeftOut(NamedTuple):
    """A row that is no fault of the source's and not wanted. It is counted by its reason, and no more."""

    kind: str
    reason: str


Row = Passage | NotProse | Link | Query | Qrel | Answer | Rejected | LeftOut | Begins

Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function for each of some things, in several processes perhaps, and gives what it returns, in their order."""


@dataclass(frozen=True)
class Part:
    """Rows of a source that a process of its own can read: `read` may be sent there.

    Every row then passes through `finish`, here and in order, for what needs to know of other parts.
    """

    read: Callable[[], Iterable[Row]]
    finish: Callable[[Row], Row] | None = None

    def then(self, finish: Callable[[Row], Row]) -> Part:
        """The same rows, with something more done to each."""
        before = self.finish
        return Part(self.read, finish if before is None else lambda row: finish(before(row)))


@dataclass(frozen=True)
class Source:
    """A source: its format, the files it reads (name inside the source → path) and its rows.

    `identity` is what distinguishes it from others where it has no files. `candidates` says that a passage is a
    sentence (its title) with the passage that it stands in (its text), as in ReQA. `notes` say what was found out about
    its files. `parts` divides it into parts of some size in bytes, whose rows, one part after the other, are those of
    `rows`; None for a source that is read as a whole.
    """

    format: str
    files: dict[str, Path]
    rows: Callable[[], Iterator[Row]]
    identity: str = ""
    candidates: bool = False
    notes: tuple[str, ...] = ()
    parts: Callable[[int, Each], list[Part]] | None = None
