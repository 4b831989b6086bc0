"""Reads hard negatives from existing files: TREC runs, MS MARCO's triples and lists, DPR's training files.

| first line of the file | read as |
|---|---|
| `q7 Q0 p12 1 18.3 bm25` | a TREC run: its ranking, best first |
| `7<tab>12<tab>34` | query, positive, negative: `qidpidtriples.*.tsv` of MS MARCO |
| `{"qid": 7, "neg": {"bm25": [34, 56]}}` | sentence-transformers' `msmarco-hard-negatives.jsonl`: its systems in turn |
| `{"query_id": "7", "negatives": {"doc_id": ["34"]}}` | the training files of SimLM's authors |
| `[{"question": …, "hard_negative_ctxs": […]}]` | DPR's `biencoder-*.json`; query ids are as in `ingest` |

Shapes: Q queries, D negatives of each.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.dpr import CONTEXT_ID, PREFIX, query_id
from stillhouse.corpus.sources.json_files import read_elements
from stillhouse.corpus.sources.lines import DAMAGED, open_binary, read_lines, read_objects
from stillhouse.corpus.sources.rows import Rejected
from stillhouse.evaluation.runs import read_run

RUN, TRIPLES, LISTS, DPR = "run", "triples", "lists", "dpr"
HEAD = 1 << 16
"""Bytes read for the first line, which identifies the format."""
Listed = Iterator[tuple[str, Iterable[str]]]
"""Queries with wrong passages, best first; a query may appear again."""


@dataclass
class NegativeLists:
    """The negatives of each query: `of` maps a query to an array of numbers, which `passages` maps ids to."""

    most: int
    of: dict[str, array[int]]
    passages: dict[str, int] = field(default_factory=dict)
    others: int = 0
    """The number of lines or lists for queries that were not asked for."""

    def add(self, query: str, passages: Iterable[str]) -> None:
        """Add new passages to a query's list until it is full."""
        if (own := self.of.get(query)) is None:
            self.others += 1
            return
        for passage in passages:
            if len(own) >= self.most:
                break
            number = self.passages.setdefault(passage, len(self.passages))
            if number not in own:
                own.append(number)

    def rows(self, find: Callable[[Iterable[str]], NDArray[np.int64]]) -> tuple[NDArray[np.int32], int]:
        """Passage rows int32 [Q, D], padded with -1, in the order of the queries, and how many ids are unknown."""
        row_of = np.append(find(self.passages), -1).astype(np.int32)
        width = max((len(own) for own in self.of.values()), default=0)
        rows_QD = np.full((len(self.of), width), -1, dtype=np.int32)
        for number, own in enumerate(self.of.values()):
            rows_QD[number, : len(own)] = row_of[np.frombuffer(own, dtype=np.int32)] if own else ()
        return rows_QD, int((row_of[:-1] < 0).sum())


def read_negatives(path: Path, queries: Iterable[str], most: int) -> NegativeLists:
    """The first `most` negatives that a file lists for each of `queries`.

    Raises `InputError` for a file that is missing, damaged or in an unknown format, and for a line that cannot be read.
    """
    lists = NegativeLists(most, {query: array("i") for query in queries})
    for query, passages in READERS[detect(path)](path):
        lists.add(query, passages)
    return lists


def detect(path: Path) -> str:
    """The format of a file, from its first line. Raises `InputError` for an unknown format."""
    try:
        with open_binary(path) as file:
            head = file.read(HEAD)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; name a file of negatives") from None
    except DAMAGED as error:
        raise InputError(f"{path} cannot be read ({error}); fetch the file again") from None
    line = head.decode("utf-8-sig", errors="replace").lstrip().partition("\n")[0]
    if line[:1] in ("[", "{"):
        return DPR if line[0] == "[" else LISTS
    if len(line.split("\t")) == 3:
        return TRIPLES
    if len(line.split()) == 6:
        return RUN
    raise InputError(
        f"{path} is not a list of negatives: give a TREC run, lines of `query, positive, negative` separated by tabs, "
        "JSON lines with `neg` or `negatives`, or DPR's training JSON"
    )


def _run(path: Path) -> Listed:
    lines = read_run(path)
    for query, own in lines.groupby("query_id", sort=False, observed=True):
        yield str(query), own["passage_id"].astype(str)


def _triples(path: Path) -> Listed:
    for line in read_lines(path, path.name):
        cells = () if isinstance(line, Rejected) else line[1].rstrip("\r\n").split("\t")
        if len(cells) != 3:
            where = line.where if isinstance(line, Rejected) else f"{path.name}:{line[0]}"
            raise InputError(f"{path}: {where} is not `query, positive, negative` separated by tabs; correct the line")
        yield cells[0].strip(), [cells[2].strip()]


def _lists(path: Path) -> Listed:
    for row in read_objects(path, path.name):
        try:
            if isinstance(row, Rejected):
                raise ValueError(row.reason)
            query = next(row[name] for name in ("query_id", "qid", "_id") if name in row)
            yield _name(query), _in_turn(row["neg"] if "neg" in row else row["negatives"])
        except (KeyError, StopIteration, TypeError, ValueError) as error:
            reason = str(error) if isinstance(error, ValueError) else "it lacks `query_id` or `negatives`"
            raise InputError(f"{path}: {row.where} cannot be read ({reason}); correct the line") from None


def _in_turn(negatives: Any) -> list[str]:
    """The passages of a list, of lists by system (the best of each first), or of an object with a `doc_id` list."""
    if isinstance(negatives, Mapping):
        lists = [negatives["doc_id"]] if "doc_id" in negatives else list(negatives.values())
    else:
        lists = [negatives]
    if not all(isinstance(each, list) for each in lists):
        raise ValueError("its negatives are not a list")
    return [_name(passage) for passage in chain.from_iterable(zip_longest(*lists)) if passage is not None]


def _dpr(path: Path) -> Listed:
    for number, element in enumerate(read_elements(path)):
        try:
            contexts = element["hard_negative_ctxs"]
            names = [_name(next(context[name] for name in CONTEXT_ID if name in context)) for context in contexts]
        except (KeyError, StopIteration, TypeError, ValueError) as error:
            reason = f": {error}" if isinstance(error, ValueError) else ""
            raise InputError(
                f"{path}: question {number + 1:,} has no `hard_negative_ctxs` with `passage_id`{reason}; give a "
                "biencoder file"
            ) from None
        yield query_id(path, number), [name.removeprefix(PREFIX) for name in names]


def _name(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{value!r} is not an id")
    return str(value)


READERS: Mapping[str, Callable[[Path], Listed]] = {RUN: _run, TRIPLES: _triples, LISTS: _lists, DPR: _dpr}
