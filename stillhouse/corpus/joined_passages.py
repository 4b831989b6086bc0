"""Joins the parts of a source: finds passages that several parts have, and writes the others to one table.

Look-ups over all passages use the sorted digests in the folders of the parts, which are memory-mapped. So memory holds
only a row group, the requested rows and the rejected rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillhouse.corpus.digest_numbers import digests_of
from stillhouse.corpus.part_files import COLUMNS, Keys, PartFiles
from stillhouse.corpus.repeats import Repeats, buckets_of, find_repeats, without_rows
from stillhouse.corpus.schemas import SCHEMAS, UNIQUE
from stillhouse.corpus.sources.rows import Begins, Each, Passage, Rejected, Row
from stillhouse.corpus.table_file import TableFile
from stillhouse.corpus.taken_passages import TakenPassages

_NAMES = SCHEMAS["passages"].names
_NO_ROWS = np.zeros(0, dtype=np.int64)


class JoinedPassages(TakenPassages):
    """The passages of all parts, in `path` once `rows` has been read to its end."""

    def __init__(self, folders: Sequence[Path], path: Path, each: Each) -> None:
        self._parts = [PartFiles(folder) for folder in folders]
        self._file = TableFile(path, SCHEMAS["passages"], UNIQUE["passages"])
        counts = np.array([part.passages for part in self._parts], dtype=np.int64)
        begins = sum(part.begins for part in self._parts)
        nothing = Repeats(_NO_ROWS, _NO_ROWS, np.zeros(0, dtype=np.bool_))
        self._again = find_repeats(folders, "begins", begins, {}, each) if begins else nothing
        self._within = {number: self._rows_within(number) for number in np.unique(self._again.part).tolist()}
        self._repeats = find_repeats(folders, "ids", int(counts.sum()), self._within, each)
        self._gone = self._within | {
            number: np.union1d(self._within.get(number, _NO_ROWS), self._repeats.of_part(number)[0])
            for number in np.unique(self._repeats.part).tolist()
        }
        taken = counts - [len(self._gone.get(number, ())) for number in range(len(counts))]
        self._offsets = np.concatenate([[0], np.cumsum(taken)])

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def _stretches(self, number: int) -> list[tuple[int, Begins]]:
        """The articles of a part that an earlier part also has, with their places among the part's rows."""
        again = set(self._again.of_part(number)[0].tolist())
        found = ((at, row) for at, row in self._parts[number].others() if isinstance(row, Begins))
        return [both for count, both in enumerate(found) if count in again]

    def _rows_within(self, number: int) -> NDArray[np.int64]:
        """The rows of the passages of these articles, int64, ascending."""
        places = self._parts[number].places
        edges = (np.searchsorted(places, [at, at + row.rows + 1]) for at, row in self._stretches(number))
        return np.concatenate([_NO_ROWS, *(np.arange(*both) for both in edges)])

    def rows(self, finish: Sequence[Callable[[Row], Row] | None]) -> Iterator[Row]:
        """Writes the passages. Yields the other rows of all parts in order, passed through the part's `finish`, and a
        `Rejected` for each passage that repeats an earlier one.
        """
        for number, (part, finishing) in enumerate(zip(self._parts, finish)):
            others = self._others(number) if number in self._gone else _unmarked(part.others())
            yield from others if finishing is None else map(finishing, others)
            self._write_part(number)

    def _write_part(self, number: int) -> None:
        gone, first = self._gone.get(number, _NO_ROWS), 0
        for batch in self._parts[number].batches():
            rows = pa.Table.from_batches([batch.select(_NAMES)], SCHEMAS["passages"])
            begin, end = np.searchsorted(gone, [first, first + len(batch)])
            if begin < end:
                taken = np.ones(len(batch), dtype=np.bool_)
                taken[gone[begin:end] - first] = False
                rows = rows.filter(pa.array(taken))
            self._file.write_rows(rows)
            first += len(batch)

    def _others(self, number: int) -> Iterator[Row]:
        """The other rows of a part that has repeats."""
        part = self._parts[number]
        dropped = dict(self._stretches(number))
        repeats = self._rejected(number)
        waiting = next(repeats, None)
        until = -1
        for at, row in part.others():
            while waiting is not None and waiting[0] < at:
                yield waiting[1]
                waiting = next(repeats, None)
            if at in dropped:
                assert isinstance(row, Begins)
                until = at + row.rows
                yield Rejected("passage", row.id, row.reason, row.where, row.content)
            elif at > until and not isinstance(row, Begins):
                yield row
        while waiting is not None:
            yield waiting[1]
            waiting = next(repeats, None)

    def _rejected(self, number: int) -> Iterator[tuple[int, Rejected]]:
        """The passages of a part that repeat the id of an earlier passage, with their places."""
        part, first = self._parts[number], 0
        rows, same = self._repeats.of_part(number)
        places = part.places[rows].tolist()
        for batch in part.batches():
            begin, end = np.searchsorted(rows, [first, first + len(batch)])
            found = batch.take(pa.array(rows[begin:end] - first))
            columns = (found.column(COLUMNS.names.index(name)).to_pylist() for name in ("passage_id", "where", "text"))
            for at, is_same, id, where, text in zip(places[begin:end], same[begin:end].tolist(), *columns):
                reason = "duplicate id, same text" if is_same else "duplicate id, different text"
                yield at, Rejected("passage", id, reason, where, text)
            first += len(batch)

    def add(self, passages: Sequence[Passage]) -> list[str]:
        raise AssertionError("the parts hold all passages")

    @property
    def articles(self) -> int:
        own = sum(
            int(part.own.sum() - part.own[self._gone[number]].sum()) if number in self._gone else int(part.own.sum())
            for number, part in enumerate(self._parts)
        )
        count = sum(len(part.keys("articles")) for part in self._parts)
        return own + (sum(map(self._articles_in, buckets_of(count))) if count else 0)

    def _articles_in(self, bounds: tuple[int, int]) -> int:
        """How many articles of a bucket do not share their id with a passage that is its own article."""
        found: list[NDArray[np.uint64]] = [np.zeros((0, 2), dtype=np.uint64)]
        for number, part in enumerate(self._parts):
            keys = part.keys("articles")
            keys = without_rows(keys[keys.within(*bounds)], self._gone.get(number))
            found.append(_unique(np.stack([keys.high, keys.low], axis=1)))
        articles_A2 = _unique(np.concatenate(found))
        return len(articles_A2) - int(self._is_own(articles_A2).sum())

    def _is_own(self, digests_B2: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether each digest belongs to a passage that is its own article, bool [B]."""
        own_B = np.zeros(len(digests_B2), dtype=np.bool_)
        for number, part in enumerate(self._parts):
            if part.passages and part.own.any():
                keys = without_rows(part.keys("ids"), self._gone.get(number))
                place_B = keys.find(digests_B2)
                own_B[place_B >= 0] |= part.own[keys.rows[place_B[place_B >= 0]]]
        return own_B

    def rows_of(self, ids: Sequence[str]) -> NDArray[np.int64]:
        asked_B2 = digests_of(ids)
        rows_B = np.full(len(ids), -1, dtype=np.int64)
        for number, (part, (begin, end)) in enumerate(zip(self._parts, pairwise(self._offsets.tolist()))):
            if begin == end or not len(ids):
                continue
            gone = self._gone.get(number, _NO_ROWS)
            keys = without_rows(part.keys("ids"), gone)
            place_B = keys.find(asked_B2)
            there_B = place_B >= 0
            of_part = np.asarray(keys.rows[place_B[there_B]])
            rows_B[there_B] = begin + of_part - np.searchsorted(gone, of_part)
        return rows_B

    def has_articles(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        asked_B2 = digests_of(ids)
        if not len(asked_B2):
            return np.zeros(0, dtype=np.bool_)
        found_B = self._is_own(asked_B2)
        for number, part in enumerate(self._parts):
            found_B |= without_rows(part.keys("articles"), self._gone.get(number)).find(asked_B2) >= 0
        return found_B


def _unmarked(others: Iterator[tuple[int, Row]]) -> Iterator[Row]:
    return (row for _, row in others if not isinstance(row, Begins))


def _unique(digests_B2: NDArray[np.uint64]) -> NDArray[np.uint64]:
    keys = Keys.of(digests_B2, np.zeros(len(digests_B2), dtype=np.int64))
    first = np.append(True, (keys.high[1:] != keys.high[:-1]) | (keys.low[1:] != keys.low[:-1]))[: len(keys)]
    return np.stack([keys.high[first], keys.low[first]], axis=1)
