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

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillhouse.corpus.cleaning import blocks_of, faults_of, rejected_passage, shown
from stillhouse.corpus.digest_numbers import digests_of
from stillhouse.corpus.fields import fields_as_text
from stillhouse.corpus.part_folder import part_folder
from stillhouse.corpus.schemas import SCHEMAS
from stillhouse.corpus.sources.rows import (
    Answer,
    LeftOut,
    Link,
    NotProse,
    Passage,
    Qrel,
    Query,
    Rejected,
    Row,
)
from stillhouse.corpus.taken_passages import COLUMNS, TakenPassages, articles_of

ROWS: dict[str, Any] = {kind.__name__: kind for kind in (Answer, LeftOut, Link, NotProse, Qrel, Query, Rejected)}
DIGESTS = ("id_high", "id_low", "article_high", "article_low", "content")
PASSAGES = pa.schema(
    [
        *SCHEMAS["passages"],
        ("where", pa.string()),
        ("fields", pa.string()),
        ("at", pa.int64()),
        *((name, pa.uint64()) for name in DIGESTS),
    ]
)
"""A passage, its fields as text, its place among the rows of the part, and its digests."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")

Placed = tuple[int, Row]


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
        pa.ipc.new_file(sink, PASSAGES, options=_COMPRESSED) as file,
    ):
        begin = 0
        for block in blocks_of(read()):
            reasons = iter(faults_of([row for row in block if isinstance(row, Passage)]))
            kept: list[tuple[int, Passage]] = []
            for at, row in enumerate(block, start=begin):
                other: Row = row
                if isinstance(row, Passage):
                    if not (reason := next(reasons)):
                        kept.append((at, row))
                        continue
                    other = rejected_passage(row, reason)
                if isinstance(other, Rejected):
                    other = shown(other)
                others.write(json.dumps([at, type(other).__name__, *other]) + "\n")
            begin += len(block)
            if kept:
                file.write_batch(_batch(kept))


def _batch(kept: list[tuple[int, Passage]]) -> pa.RecordBatch:
    places, passages = zip(*kept)
    columns: dict[str, Any] = dict(zip((*COLUMNS, "where"), map(list, zip(*passages))))
    columns |= {"fields": fields_as_text([row.fields for row in passages]), "at": places}
    ids_B2 = digests_of(columns["passage_id"])
    articles_B2 = articles_of(ids_B2, columns["passage_id"], columns["article_id"])
    contents = (f"{len(title)} {title}{text}" for title, text in zip(columns["title"], columns["text"]))
    digests = (*ids_B2.T, *articles_B2.T, digests_of(list(contents))[:, 0])
    return pa.RecordBatch.from_pydict(columns | dict(zip(DIGESTS, digests)), schema=PASSAGES)


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
            rows = pa.Table.from_batches([file.get_batch(number)])
            reasons = passages.add_rows(
                rows.select(COLUMNS),
                _digests(rows, "id"),
                _digests(rows, "article"),
                rows.column("content").to_numpy(),
                rows.column("fields").combine_chunks(),
            )
            for place, reason in enumerate(reasons):
                if reason:
                    id, where, text, at = (
                        rows.column(name)[place].as_py() for name in ("passage_id", "where", "text", "at")
                    )
                    yield at, Rejected("passage", id, reason, where, text)


def _digests(rows: pa.Table, name: str) -> NDArray[np.uint64]:
    return np.stack([rows.column(f"{name}_{half}").to_numpy() for half in ("high", "low")], axis=1)
