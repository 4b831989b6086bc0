"""The rules of a corpus applied to a source by several processes, with what one process would give (`cleaning`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stillhouse.artifacts import digest_json
from stillhouse.corpus.cleaning import CleanCorpus, Cleaning
from stillhouse.corpus.joined_passages import JoinedPassages
from stillhouse.corpus.part_files import write_part
from stillhouse.corpus.sources.rows import Each, Part, Source
from stillhouse.monitoring.activity import doing


@dataclass(frozen=True)
class Several:
    """How several processes share the work: `each` calls a function in them; `folder`, which all of them see, holds the
    parts that are finished; `watch` wraps their results: a progress bar, given how many come. A part has some
    `part_bytes` of the source.
    """

    each: Each
    folder: Path
    watch: Callable[[Iterator[Any], int], Iterator[Any]] = lambda results, count: results
    part_bytes: int = 1 << 26


def clean_parts(source: Source, several: Several, path: Path) -> CleanCorpus:
    """What `clean` gives of `source.rows()`, with the passages in `path`.

    Parts that an earlier run finished are taken unchanged, if no file of the source has changed. Raises `InputError`
    as the reader does.
    """
    with doing("dividing the source"):
        parts = [Part(source.rows)] if source.parts is None else source.parts(several.part_bytes, several.each)
        root = several.folder / f"parts-{_state(source, several.part_bytes)}"
        root.mkdir(parents=True, exist_ok=True)
    names = [f"{number:06}" for number in range(len(parts))]
    jobs = [(name, part.read) for name, part in zip(names, parts)]
    for _ in several.watch(several.each(partial(write_part, root), jobs), len(jobs)):
        pass
    with doing("putting the parts together"):
        passages = JoinedPassages([root / name for name in names], path, several.each)
        cleaning = Cleaning(passages)
        for row in passages.rows([part.finish for part in parts]):
            cleaning.take(row)
        return cleaning.finish()


def _state(source: Source, part_bytes: int) -> str:
    """The digest of what the files of a source are as the system reports it: another one when one of them was
    written."""
    stamps = {name: path.stat() for name, path in source.files.items()}
    state = {name: [stamp.st_ino, stamp.st_size, stamp.st_mtime_ns] for name, stamp in stamps.items()}
    return digest_json([source.format, source.identity, part_bytes, state])[:20]
