"""The rows that every source yields, in any order: passages, links, queries, qrels, answers and rejected rows."""

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stillhouse.core.errors import InputError

SPLITS = ("train", "dev", "test")
CONTENT_LENGTH = 200
"""Characters that are kept of a rejected row, and of its id, to recognise it."""


Value = bool | int | float | str | list[str]
"""What a field of a passage may hold."""
CODE, TABLE = "code", "table"
NOT_PROSE = (CODE, TABLE)
Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Calls a function for each item, perhaps in several processes, and yields the results in order."""
_WORD = re.compile(r"(?<![a-z])(?:doc)?(train|dev|validation|valid|val|test)(?![a-z])")


class Passage(NamedTuple):
    """`position` is the order within the article; equal ones keep the source's. `where` is `file:line` in the source.

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


@dataclass(frozen=True)
class Part:
    """Rows of a source that a separate process can read by calling `read`.

    Every row then passes through `finish`, in this process and in order, for work that involves other parts.
    """

    read: Callable[[], Iterable[Row]]
    finish: Callable[[Row], Row] = lambda row: row


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


def split_in(name: str) -> str | None:
    """The split that the name of a file or dataset contains, or None.

    The first of the words train, dev, validation (valid, val) and test counts. No other letter may touch it, except the
    `doc` of MS MARCO's files: `train-v1.1.json`, `nq-dev.qa.csv`, `msmarco-doctrain-qrels.tsv`.
    """
    found = _WORD.search(name.lower())
    if found is None:
        return None
    return found.group(1) if found.group(1) in SPLITS else "dev"


def split_at(where: str) -> str:
    """The split that the file of a row at this place names, or ""."""
    return split_in(where.rpartition(":")[0].rpartition("/")[2]) or ""


def check_splits(names: Mapping[str, str]) -> Mapping[str, str]:
    """Checks a mapping from old to new names of splits. Raises `InputError` for a name that is not a split."""
    for old, new in names.items():
        if old not in SPLITS or new not in SPLITS:
            raise InputError(
                f"splits: {old!r}: {new!r} does not name splits; write, for instance, {{dev: test}} (with train, dev, "
                "test)"
            )
    return names


def with_splits(source: Source, names: Mapping[str, str]) -> Source:
    """The source with its splits renamed; a split that is not in `names` keeps its name.

    When the rows are read, raises `InputError` if two splits of the source would become one, since their metrics would
    be mixed.
    """
    if not names:
        return source

    def parts(size: int, each: Each) -> list[Part]:
        was: dict[str, str] = {}

        def renamed(finish: Callable[[Row], Row], row: Row) -> Row:
            row = finish(row)
            if not isinstance(row, (Qrel, Answer)) or row.split not in SPLITS:
                return row
            old, new = row.split, names.get(row.split, row.split)
            if was.setdefault(new, old) != old:
                raise InputError(
                    f"splits: the source's {was[new]} and {old} would both become {new}; give each its own name, "
                    "or read the files of one from a folder without the others"
                )
            return row._replace(split=new)

        return [Part(part.read, partial(renamed, part.finish)) for part in source.parts(size, each)]

    return dataclasses.replace(source, parts=parts)
