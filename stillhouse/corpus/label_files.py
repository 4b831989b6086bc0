"""Writes queries with their relevant passages as other tools read them: `queries.jsonl` and `qrels/<split>.tsv`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from stillhouse.core.artifacts import write_whole


def write_queries(folder: Path, texts: Mapping[str, str]) -> None:
    """Writes `queries.jsonl` of query texts by id."""
    lines = [json.dumps({"_id": id, "text": text}, ensure_ascii=False) + "\n" for id, text in texts.items()]
    write_whole(folder / "queries.jsonl", "".join(lines))


def write_qrels(folder: Path, split: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Writes `qrels/<split>.tsv` of pairs of a query id and the id of a relevant passage."""
    rows = [("query-id", "corpus-id", "score"), *((query, passage, "1") for query, passage in pairs)]
    write_whole(folder / "qrels" / f"{split}.tsv", "".join("\t".join(row) + "\n" for row in rows))
