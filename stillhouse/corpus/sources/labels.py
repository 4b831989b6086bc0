"""Queries and qrels, the same in every format: `queries.jsonl[.gz]` and `qrels/<split>.tsv[.gz]` in one folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stillhouse.corpus.schemas import SPLITS
from stillhouse.corpus.sources.file_names import entries
from stillhouse.corpus.sources.lines import (
    IllTyped,
    find_file,
    identifier,
    read_lines,
    read_objects,
    shown_id,
    text_field,
)
from stillhouse.corpus.sources.rows import Qrel, Query, Rejected
from stillhouse.errors import InputError

HEADER = ["query-id", "corpus-id", "score"]
QUERY_ID = ("_id", "id", "query_id")


def find_labels(folder: Path) -> dict[str, Path]:
    """The query and qrels files of a folder, by their names inside it; {} for a corpus without labels.

    Raises `InputError` for qrels without queries, and for a file in `qrels/` that is not named after a split.
    """
    files = {}
    queries = find_file(folder, "queries.jsonl")
    if queries is not None:
        files[queries.name] = queries
    qrels = folder / "qrels"
    known = [f"{split}.tsv{suffix}" for split in SPLITS for suffix in ("", ".gz")]
    present = [path.name for path in entries(qrels) if ".tsv" in path.name] if qrels.is_dir() else []
    for name in present:
        if name not in known:
            raise InputError(
                f"{qrels / name} is not a split; rename it to train.tsv, dev.tsv or test.tsv, or delete it"
            )
    if present and queries is None:
        raise InputError(f"{folder} has qrels/ but no queries.jsonl; add the queries")
    for split in SPLITS:
        path = find_file(qrels, f"{split}.tsv")
        if path is not None:
            files[f"qrels/{path.name}"] = path
    return files


def read_labels(files: dict[str, Path]) -> Iterator[Query | Qrel | Rejected]:
    """The rows of the files that `find_labels` found: all queries, then all qrels."""
    for name, path in files.items():
        if not name.startswith("qrels/"):
            yield from read_queries(path, name)
    for name, path in files.items():
        if name.startswith("qrels/"):
            yield from read_qrels(path, name, path.name.split(".")[0])


def read_queries(path: Path, name: str) -> Iterator[Query | Rejected]:
    """The rows of a `queries.jsonl`."""
    for fields in read_objects(path, name):
        if isinstance(fields, Rejected):
            yield fields
            continue
        try:
            yield Query(identifier(fields, QUERY_ID), text_field(fields, "text"), fields.where)
        except IllTyped as reason:
            yield Rejected("query", shown_id(fields, QUERY_ID), str(reason), fields.where, fields.content)


def read_qrels(path: Path, name: str, split: str) -> Iterator[Qrel | Rejected]:
    """The rows of a qrels file with three columns."""
    first = True
    for line in read_lines(path, name):
        if isinstance(line, Rejected):
            yield line
            continue
        number, text = line
        cells = text.split("\t")
        is_header, first = first and cells == HEADER, False
        if is_header:
            continue
        where = f"{name}:{number}"
        if len(cells) == 3:
            yield Qrel(cells[0], cells[1], cells[2], split, where)
        else:
            yield Rejected("qrel", cells[0], f"not three columns ({', '.join(HEADER)})", where, text)
