"""Finds the table files of a folder by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.split_names import split_in

SUFFIXES = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", ".json", ".json.gz")
NAMES = {
    "passages": ("passages", "corpus"),
    "links": ("links",),
    "queries": ("queries",),
    "qrels": ("qrels",),
    "answers": ("answers",),
    "not_prose": ("not_prose",),
    "unjudged": ("unjudged",),
}
"""The names that the file or folder of each table may have."""

PART = re.compile(r"-[0-9]+-of-[0-9]+")
"""What the name of a numbered part of a table ends in."""


@dataclass(frozen=True)
class TableOfFile:
    """One file of a table. `split` comes from its name.

    `columns` are the names of its chosen columns and fields, and `delimiter` is that of its cells, if it has any.
    """

    table: str
    name: str
    path: Path
    split: str
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    delimiter: str = ""


def find_tables(folder: Path) -> list[TableOfFile]:
    """The table files of a folder, table by table. Raises `InputError` if a table exists twice."""
    return [file for table in NAMES for file in files_of(folder, table)]


def files_of(folder: Path, table: str) -> list[TableOfFile]:
    """The files of one table of a folder. Raises `InputError` if the table exists twice."""
    found: dict[str, list[TableOfFile]] = {}
    for path in sorted(folder.iterdir()):
        name, suffix = path.name.split(".")[0].split("-")[0], suffix_of(path)
        if name not in NAMES[table]:
            continue
        if path.is_dir():
            parts = [part for part in sorted(path.iterdir()) if part.is_file() and suffix_of(part)]
            # A query log has its feedback as JSON lines beside its queries.
            parts = [part for part in parts if ".jsonl" not in part.name] or parts
            found[path.name] = [TableOfFile(table, f"{path.name}/{p.name}", p, split_in(p.name) or "") for p in parts]
        elif suffix:
            split = split_in(path.name.removesuffix(suffix)) or ""
            # qrels.train.tsv and qrels.test.tsv are one table, and so are numbered parts; qrels.tsv and qrels.parquet
            # are two.
            kind = f"{name}.*" if split else PART.sub("", path.name)
            found.setdefault(kind, []).append(TableOfFile(table, path.name, path, split))
    found = {name: parts for name, parts in found.items() if parts}
    if len(found) > 1:
        raise InputError(f"{folder} has {' and '.join(found)}; keep only one of them")
    return [file for parts in found.values() for file in parts]


def suffix_of(path: Path) -> str | None:
    """The suffix in `SUFFIXES` that a file's name ends in, or None."""
    return next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), None)
