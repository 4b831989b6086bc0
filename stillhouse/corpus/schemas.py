"""The tables of a corpus (docs/reference/formats.md): their names, columns and types."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from stillhouse.corpus.answers import TEXT
from stillhouse.corpus.sources.rows import SPLITS as SPLITS

NUMBERS = ("position", "relevance")
"""The columns that are int32; all others are texts."""


def _schema(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.int32() if name in NUMBERS else pa.string()) for name in names])


SCHEMAS: Mapping[str, pa.Schema] = {
    "passages": _schema("passage_id", "title", "text", "article_id", "section", "position"),
    "links": _schema("source", "target"),
    "queries": _schema("query_id", "text", "split", "origin", "taken_from"),
    "qrels": _schema("query_id", "passage_id", "relevance", "split"),
    "answers": _schema("query_id", "answer", "kind", "split"),
    "rejected": _schema("kind", "id", "reason", "where", "content"),
}

SPARSE: Mapping[str, pa.Schema] = {"not_prose": _schema("passage_id", "kind"), "unjudged": _schema("query_id", "text")}
"""Tables that are empty in most corpora. Their file exists only if they have a row."""

DROPPED = _schema("query_id", "text", "taken_from", "reason")
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

DEFAULTS: Mapping[str, Mapping[str, str]] = {"queries": {"origin": SOURCE, "taken_from": ""}, "answers": {"kind": TEXT}}
"""The columns that a writer may leave out, and their default values."""

Columns = Mapping[str, Sequence[object]]
