"""The columns of tables: the names that each may have, and which of them a file has."""

from __future__ import annotations

from collections.abc import Mapping

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.lines import in_any_case
from stillhouse.corpus.sources.table_names import TableOfFile

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
    "answers": {
        "query": _QUERY_IDS,
        "answer": ("answer", "text"),
        "kind": ("kind",),
        "split": ("split",),
    },
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
