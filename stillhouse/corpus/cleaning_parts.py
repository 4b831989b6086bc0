"""Applies the rules of a corpus in several processes, with the same result as in one process (`cleaning`).

Each process writes the files of a part of the source: its passages, each checked by itself, and its other rows. A part
is a folder that appears whole or not at all, even after a kill, and takes the memory of a block of rows. `rows_of_part`
then applies the rules that involve earlier parts.
"""

import heapq
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillhouse.core.artifacts import digest_json, flush
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.cleaning import CleanCorpus, Cleaning, checked, shown
from stillhouse.corpus.sources.rows import Answer, Each, LeftOut, Link, NotProse, Qrel, Query, Rejected, Row, Source
from stillhouse.corpus.taken_passages import CHECKED, Placed, TakenPassages

ROWS: dict[str, Any] = {kind.__name__: kind for kind in (Answer, LeftOut, Link, NotProse, Qrel, Query, Rejected)}
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@contextmanager
def part_folder(folder: Path) -> Iterator[Path]:
    """Yields a folder beside `folder` to write into, and renames it to `folder` once the block ends without an error.

    If an earlier try at the same part, wrongly given up as dead, finishes first, its folder stays: the files are equal.
    """
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield staging
        flush(staging)
        try:
            staging.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


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


@dataclass(frozen=True)
class Several:
    """How several processes share the work. `each` calls a function in the processes. `folder`, which all of them see,
    holds the finished parts. `watch(results, count)` wraps the results in a progress bar. A part has about `part_bytes`
    bytes of the source.
    """

    each: Each
    folder: Path
    watch: Callable[[Iterator[Any], int], Iterator[Any]] = lambda results, count: results
    part_bytes: int = 1 << 26


def clean_parts(source: Source, several: Several, path: Path) -> CleanCorpus:
    """Returns what `clean` returns for `source.rows()`, with the passages in `path`.

    Reuses the parts that an earlier run finished, if no file of the source has changed. Raises `InputError` as the
    reader does.
    """
    with doing("dividing the source"):
        parts = list(source.parts(several.part_bytes, several.each))
        root = several.folder / f"rows-{_state(source, several.part_bytes)}"
        root.mkdir(parents=True, exist_ok=True)
    names = [f"{number:06}" for number in range(len(parts))]
    jobs = [(name, part.read) for name, part in zip(names, parts)]
    for _ in several.watch(several.each(partial(write_part, root), jobs), len(jobs)):
        pass
    with doing("joining the parts"):
        cleaning = Cleaning(TakenPassages(path))
        for name, part in zip(names, parts):
            for row in rows_of_part(root / name, cleaning.corpus.passages):
                cleaning.take(part.finish(row))
        return cleaning.finish()


def _state(source: Source, part_bytes: int) -> str:
    """A digest of the inode, size and modification time of a source's files, and of the columns of a part."""
    stamps = {name: path.stat() for name, path in source.files.items()}
    state = {name: [stamp.st_ino, stamp.st_size, stamp.st_mtime_ns] for name, stamp in stamps.items()}
    return digest_json([source.format, source.identity, part_bytes, state, CHECKED.names])[:20]
