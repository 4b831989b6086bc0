"""The table files of a folder by their names, the columns of each, and the fields of passages that are kept."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.corpus.fields import FILE
from stillhouse.corpus.sources.lines import Fields, in_any_case
from stillhouse.corpus.sources.rows import Passage, Rejected, split_in

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
_IDS = {"passage": ("passage_id", "_id", "id", "pid", "docid", "doc_id"), "query": ("query_id", "_id", "id", "qid")}
_QUERY_IDS = ("query_id", "query-id", "qid")
COLUMNS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "passages": {
        "id": _IDS["passage"],
        "title": ("title",),
        "text": ("text", "contents", "content", "page_content", "body", "passage", "document"),
        "article_id": ("article_id",),
        "section": ("section",),
        "position": ("position",),
    },
    "links": {"source": ("source",), "target": ("target",)},
    "queries": {"id": _IDS["query"], "text": ("text", "query", "question"), "origin": ("origin",)},
    "qrels": {
        "query": _QUERY_IDS,
        "passage": ("passage_id", "corpus-id", "corpus_id", "pid", "docid", "doc_id", "doc-id"),
        "relevance": ("relevance", "score", "rel", "label"),
        "split": ("split",),
    },
    "answers": {"query": _QUERY_IDS, "answer": ("answer", "text"), "kind": ("kind",), "split": ("split",)},
    "not_prose": {"id": _IDS["passage"], "kind": ("kind",)},
    "unjudged": {"id": _IDS["query"], "text": ("text",)},
}
"""The possible names of each column, of which the first that exists is used; the setting `columns` gives others."""
FIELD = "fields."
"""Begins the names of the columns of passages that are kept as fields."""
OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "passages": ("id", "title", "article_id", "section", "position"),
    "queries": ("origin",),
    "qrels": ("relevance", "split"),
    "answers": ("kind", "split"),
}
"""The columns of each table that may be missing."""
METADATA = "metadata"
"""The key of an object with more keys, as some sets in BEIR layout have it."""


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
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def named_columns(columns: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Turns `{passages.text: body}` into (table, column) → name in the file. Raises `InputError` for other columns."""
    chosen = {}
    for key, name in columns.items():
        table, _, column = key.partition(".")
        if column not in COLUMNS.get(table, {}) or not name:
            known = ", ".join(f"{table}.{column}" for table, columns in COLUMNS.items() for column in columns)
            raise InputError(f"columns: {key!r} is not a column; write {{passages.text: body}}, with one of {known}")
        chosen[table, column] = name
    return chosen


def find_columns(file: TableOfFile, present: list[str]) -> dict[str, str]:
    """Column → its name in the file, in any case. Raises `InputError` if a required column is missing."""
    found, written = {}, in_any_case(present)
    for column, names in names_of(file).items():
        known = [written[name] for name in names if name in written]
        if known:
            found[column] = known[0]
        elif column.startswith(FIELD):
            raise InputError(f"fields: {file.path} has no column {names[0]}; it has {', '.join(present[:20])}")
        elif column in file.columns or column not in OPTIONAL.get(file.table, ()):
            pairs = ", or two to question and answer" if (file.table, column) == ("passages", "text") else ""
            raise InputError(
                f"{file.path} has no column {' or '.join(names)}; rename one of its columns{pairs}, or set `columns: "
                f"{{{file.table}.{column}: <name>}}`; they are: {', '.join(present[:20])}"
            )
    return found


def names_of(file: TableOfFile) -> dict[str, tuple[str, ...]]:
    """The possible names of each column, or only the one that was chosen, and the names of fields."""
    return {**COLUMNS[file.table], **file.columns}


def kept_fields(names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of these names in an object or its metadata."""
    if not names:
        return None
    more = given.get(METADATA)
    every = {**more, **given} if isinstance(more, dict) else given
    return {name: every[name] for name in names if name in every}


def fields_beside(passages: Path) -> list[Path]:
    """The fields of a corpus's table of passages, if it has any."""
    path = passages.with_name(FILE)
    return [path] if passages.name == "passages.parquet" and path.is_file() else []


def with_fields(row: Fields | Passage | Rejected, fields: Mapping[str, Any]) -> Fields | Passage | Rejected:
    """A row of a table of passages with the fields beside it, and its own."""
    if isinstance(row, Passage):
        return row._replace(fields={**fields, **(row.fields or {})})
    if isinstance(row, Fields):
        for name, value in fields.items():
            row.setdefault(FIELD + name, value)
    return row
