"""Applies the rules of a corpus in several processes, with the same result as in one process (`cleaning`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import digest_json
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.cleaning import CleanCorpus, Cleaning
from stillhouse.corpus.part_files import rows_of_part, write_part
from stillhouse.corpus.sources.rows import Each, Source
from stillhouse.corpus.taken_passages import CHECKED, TakenPassages


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
