"""The tables of a corpus (docs/formats.md): their names, columns and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from stillhouse.corpus.answers import TEXT

SPLITS = ("train", "dev", "test")

SCHEMAS: Mapping[str, pa.Schema] = {
    "passages": pa.schema(
        [
            ("passage_id", pa.string()),
            ("title", pa.string()),
            ("text", pa.string()),
            ("article_id", pa.string()),
            ("section", pa.string()),
            ("position", pa.int32()),
        ]
    ),
    "links": pa.schema([("source", pa.string()), ("target", pa.string())]),
    "queries": pa.schema(
        [
            ("query_id", pa.string()),
            ("text", pa.string()),
            ("split", pa.string()),
            ("origin", pa.string()),
            ("taken_from", pa.string()),
        ]
    ),
    "qrels": pa.schema(
        [
            ("query_id", pa.string()),
            ("passage_id", pa.string()),
            ("relevance", pa.int32()),
            ("split", pa.string()),
        ]
    ),
    "answers": pa.schema(
        [
            ("query_id", pa.string()),
            ("answer", pa.string()),
            ("kind", pa.string()),
            ("split", pa.string()),
        ]
    ),
    "rejected": pa.schema(
        [
            ("kind", pa.string()),
            ("id", pa.string()),
            ("reason", pa.string()),
            ("where", pa.string()),
            ("content", pa.string()),
        ]
    ),
}

SPARSE: Mapping[str, pa.Schema] = {
    "not_prose": pa.schema([("passage_id", pa.string()), ("kind", pa.string())]),
}
"""Tables of which most corpora have no row. Their file is there only where they have one."""

TABLES = {**SCHEMAS, **SPARSE}

SOURCE = "source"
"""The origin of a query that came with the source; all others are of synthetic ones: a pair task, or `GENERATED`."""
GENERATED = "generated"
"""The origin of a question that a chat model made of a passage, and what its id begins with."""
ADDED = "added"
"""The origin of a train query that joined those of the source from elsewhere: feedback on a service's answers, say."""

UNIQUE = {"passages": ("passage_id", "text")}
"""Columns in which hardly a value comes twice, so that no dictionary of values is tried for them."""

DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "queries": {"origin": SOURCE, "taken_from": ""},
    "answers": {"kind": TEXT},
}
"""The columns that a writer may leave out, and what they then hold."""

Columns = Mapping[str, Sequence[object]]
