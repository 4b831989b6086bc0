"""The files that a process writes for one part of a source: its passages, each checked by itself, and its other rows.

A part is a folder that is written whole or not at all. Writing it takes the memory of a block of rows, and 50 bytes
per passage of the part. `joined_passages` applies the rules that involve other parts, with the help of sorted digests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillhouse.arrays import save_array
from stillhouse.artifacts import write_json
from stillhouse.corpus.cleaning import blocks_of, faults_of, rejected_passage, shown
from stillhouse.corpus.digest_numbers import GrowingArray, digests_of
from stillhouse.corpus.part_folder import part_folder
from stillhouse.corpus.schemas import SCHEMAS
from stillhouse.corpus.sources.rows import (
    Answer,
    Begins,
    LeftOut,
    Link,
    NotProse,
    Passage,
    Qrel,
    Query,
    Rejected,
    Row,
)

COLUMNS = pa.schema([*SCHEMAS["passages"], ("where", pa.string())])
ROWS: dict[str, Any] = {
    kind.__name__: kind for kind in (Answer, Begins, LeftOut, Link, NotProse, Qrel, Query, Rejected)
}
KEYS = ("ids", "articles", "begins")
"""The sorted lists of digests in a part: of passages, of articles that are not passages, and of `Begins`."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class Keys:
    """Digests in ascending order, equal digests in the order of their rows: `high` and `low` uint64, `rows` int64."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, digests_B2: NDArray[np.uint64], rows: NDArray[np.int64]) -> Keys:
        order = np.lexsort((digests_B2[:, 1], digests_B2[:, 0]))
        return cls(digests_B2[order, 0], digests_B2[order, 1], rows[order])

    @classmethod
    def open(cls, folder: Path, name: str) -> Keys:
        """Memory-maps the keys that `save` wrote."""
        return cls(*(np.load(folder / f"{name}.{field}.npy", mmap_mode="r") for field in ("high", "low", "rows")))

    def save(self, folder: Path, name: str) -> None:
        for field in ("high", "low", "rows"):
            save_array(folder / f"{name}.{field}.npy", getattr(self, field))

    def __len__(self) -> int:
        return len(self.high)

    def __getitem__(self, chosen: Any) -> Keys:
        return Keys(self.high[chosen], self.low[chosen], self.rows[chosen])

    def within(self, first: int, end: int) -> slice:
        """The slice of keys whose upper half is in [first, end)."""
        edges = [0 if first == 0 else self._place(first), len(self) if end >= 1 << 64 else self._place(end)]
        return slice(*edges)

    def _place(self, high: int) -> int:
        return int(np.searchsorted(self.high, np.uint64(high)))

    def find(self, digests_B2: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The first place of each digest, int64 [B]; -1 for a missing digest."""
        high_B, low_B = digests_B2[:, 0].copy(), digests_B2[:, 1]
        place_B = np.searchsorted(self.high, high_B).astype(np.int64)
        found_B = np.full(len(place_B), -1, dtype=np.int64)
        open_B = np.flatnonzero(place_B < len(self))
        while len(open_B):
            at = place_B[open_B]
            near = self.high[at] == high_B[open_B]
            same = near & (self.low[at] == low_B[open_B])
            found_B[open_B[same]] = at[same]
            open_B = open_B[near & ~same]
            place_B[open_B] += 1
            open_B = open_B[place_B[open_B] < len(self)]
        return found_B


def write_part(root: Path, job: tuple[str, Callable[[], Iterable[Row]]]) -> int:
    """Reads a part into the folder `root/<name>`, unless that exists. Returns the number of its passages.

    If the reader raises an error, such as `InputError` for a damaged file, no folder is left.
    """
    name, read = job
    folder = root / name
    if not folder.is_dir():
        with part_folder(folder) as staging:
            _write(staging, read())
    return PartFiles(folder).passages


def _write(folder: Path, rows: Iterable[Row]) -> None:
    ids, places, contents = GrowingArray(np.uint64, (2,)), GrowingArray(np.int64), GrowingArray(np.uint64)
    own, articles = GrowingArray(np.bool_), GrowingArray(np.uint64, (2,))
    begins, sound = GrowingArray(np.uint64, (2,)), GrowingArray(np.bool_)
    begin = 0
    with (
        (folder / "others.jsonl").open("w", encoding="ascii") as others,
        pa.OSFile(str(folder / "passages.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, COLUMNS, options=_COMPRESSED) as file,
    ):
        for block in blocks_of(rows):
            passages = [row for row in block if isinstance(row, Passage)]
            reasons = iter(faults_of(passages))
            kept: list[Passage] = []
            kept_at: list[int] = []
            for at, row in enumerate(block, start=begin):
                other: Row = row
                if isinstance(row, Passage):
                    reason = next(reasons)
                    if not reason:
                        kept.append(row)
                        kept_at.append(at)
                        continue
                    other = rejected_passage(row, reason)
                if isinstance(other, Rejected):
                    other = shown(other)
                elif isinstance(other, Begins):
                    begins.append(digests_of([other.id]))
                    sound.append(np.array([other.sound]))
                others.write(json.dumps([at, type(other).__name__, *other]) + "\n")
            begin += len(block)
            if not kept:
                continue
            columns = map(list, zip(*kept))
            file.write_batch(pa.RecordBatch.from_pydict(dict(zip(COLUMNS.names, columns)), schema=COLUMNS))
            ids.append(digests_of([row.id for row in kept]))
            places.append(np.array(kept_at))
            contents.append(_contents(kept))
            own.append(np.array([row.article_id == row.id for row in kept]))
            articles.append(digests_of([row.article_id for row in kept if row.article_id != row.id]))
    rows_N = np.arange(len(ids))
    Keys.of(ids.array, rows_N).save(folder, "ids")
    Keys.of(articles.array, rows_N[~own.array]).save(folder, "articles")
    Keys.of(begins.array, np.arange(len(begins))).save(folder, "begins")
    save_array(folder / "contents.npy", contents.array)
    save_array(folder / "own.npy", own.array)
    save_array(folder / "sound.npy", sound.array)
    save_array(folder / "places.npy", places.array)
    write_json(folder / "sizes.json", {"passages": len(ids), "begins": len(begins)})


def _contents(passages: list[Passage]) -> NDArray[np.uint64]:
    """64-bit digests of the title and text of each passage, uint64 [B]."""
    return digests_of([f"{len(row.title)} {row.title}{row.text}" for row in passages])[:, 0]


@dataclass(frozen=True)
class PartFiles:
    """Reads the folder of a part. Its accepted passages are numbered from 0. `places` (int64) are their places among
    all rows of the part, `contents` (uint64) the digests of their titles and texts, and `own` marks passages that are
    their own article. `sound` (bool) is the field of each `Begins`.
    """

    folder: Path

    @cached_property
    def _sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = json.loads((self.folder / "sizes.json").read_text(encoding="utf-8"))
        return sizes

    @property
    def passages(self) -> int:
        return self._sizes["passages"]

    @property
    def begins(self) -> int:
        return self._sizes["begins"]

    @property
    def places(self) -> NDArray[np.int64]:
        return np.load(self.folder / "places.npy", mmap_mode="r")

    @property
    def contents(self) -> NDArray[np.uint64]:
        return np.load(self.folder / "contents.npy", mmap_mode="r")

    @property
    def own(self) -> NDArray[np.bool_]:
        return np.load(self.folder / "own.npy", mmap_mode="r")

    @property
    def sound(self) -> NDArray[np.bool_]:
        return np.load(self.folder / "sound.npy", mmap_mode="r")

    def keys(self, name: str) -> Keys:
        return Keys.open(self.folder, name)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The passages, with `where`."""
        with pa.OSFile(str(self.folder / "passages.arrow"), "rb") as source, pa.ipc.open_file(source) as file:
            for number in range(file.num_record_batches):
                yield file.get_batch(number)

    def others(self) -> Iterator[tuple[int, Row]]:
        """All other rows, with their places."""
        with (self.folder / "others.jsonl").open(encoding="ascii") as file:
            for line in file:
                at, kind, *fields = json.loads(line)
                yield at, ROWS[kind](*fields)
