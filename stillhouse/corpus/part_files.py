"""The files that a process writes for one part of a source: its passages, each checked by itself, and its other rows.

A part is a folder that is written whole or not at all, in the memory of a block of rows. `rows_of_part` applies the
rules that involve earlier parts.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillhouse.corpus.cleaning import checked, shown
from stillhouse.corpus.part_folder import part_folder
from stillhouse.corpus.sources.rows import (
    Answer,
    LeftOut,
    Link,
    NotProse,
    Qrel,
    Query,
    Rejected,
    Row,
)
from stillhouse.corpus.taken_passages import CHECKED, Placed, TakenPassages

ROWS: dict[str, Any] = {kind.__name__: kind for kind in (Answer, LeftOut, Link, NotProse, Qrel, Query, Rejected)}
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def write_part(root: Path, job: tuple[str, Callable[[], Iterable[Row]]]) -> None:
    """Reads a part into the folder `root/<name>`, unless that exists.

    If the reader raises an error, such as `InputError` for a damaged file, no folder is left.
    """
    name, read = job
    if (root / name).is_dir():
        return
    with (
        part_folder(root / name) as folder,
        (folder / "others.jsonl").open("w", encoding="ascii") as others,
        pa.OSFile(str(folder / "passages.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, CHECKED, options=_COMPRESSED) as file,
    ):
        for batch, rows in checked(read()):
            for at, row in rows:
                values = shown(row) if isinstance(row, Rejected) else row
                others.write(json.dumps([at, type(row).__name__, *values]) + "\n")
            if len(batch):
                file.write_batch(batch)


def rows_of_part(folder: Path, passages: TakenPassages) -> Iterator[Row]:
    """Adds the passages of a part to those of earlier parts. Yields the other rows in order, and a `Rejected` for each
    passage with the id of an earlier one.
    """
    merged = heapq.merge(_others(folder), _add_passages(folder, passages), key=itemgetter(0))
    return (row for _, row in merged)


def _others(folder: Path) -> Iterator[Placed]:
    """The rows of a part that are not passages, with their places."""
    with (folder / "others.jsonl").open(encoding="ascii") as file:
        for line in file:
            at, kind, *fields = json.loads(line)
            yield at, ROWS[kind](*fields)


def _add_passages(folder: Path, passages: TakenPassages) -> Iterator[Placed]:
    """Adds a part's passages. Yields the ones that were rejected."""
    with pa.OSFile(str(folder / "passages.arrow"), "rb") as source, pa.ipc.open_file(source) as file:
        for number in range(file.num_record_batches):
            yield from passages.add(file.get_batch(number))
