"""The tables of a corpus (docs/reference/formats.md): their names, columns and types."""

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
    "unjudged": pa.schema([("query_id", pa.string()), ("text", pa.string())]),
}
"""Tables that are empty in most corpora. Their file exists only if they have a row."""

DROPPED = pa.schema([(name, pa.string()) for name in ("query_id", "text", "taken_from", "reason")])
"""The questions that `generate-queries` made and left out, beside its table `queries`."""

TABLES = {**SCHEMAS, **SPARSE, "dropped": DROPPED}

SOURCE = "source"
"""The origin of a query that came with the source. Synthetic queries have a pair task or `GENERATED`."""
GENERATED = "generated"
"""The origin of a question that a language model wrote about a passage, and the prefix of its id."""
ADDED = "added"
"""The origin of a train query that was added from elsewhere, such as feedback on a service's answers."""

UNIQUE = {"passages": ("passage_id", "text")}
"""Columns with almost no repeated value, which are written without dictionary encoding."""

DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "queries": {"origin": SOURCE, "taken_from": ""},
    "answers": {"kind": TEXT},
}
"""The columns that a writer may leave out, and their default values."""

Columns = Mapping[str, Sequence[object]]
