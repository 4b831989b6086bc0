"""Reads passages of a Parquet table column by column, which is several times as fast as row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc

from stillhouse.corpus.sources.rows import Passage
from stillhouse.corpus.sources.table_columns import FIELD

REQUIRED = ("id", "text")
TEXTS = (*REQUIRED, "title", "article_id", "section")
MOST = 10**9
"""Positions are below this."""


def plain_passages(columns: Mapping[str, pa.Array], wheres: Sequence[str]) -> Iterator[Passage] | None:
    """The passages of some rows, or None if a value is missing or is not text and so needs a check of its own.

    `columns` are the existing ones among `id`, `text`, `title`, `article_id`, `section` and `position`, and fields.
    """
    texts = {name: columns[name] for name in TEXTS if name in columns}
    whole = all(name in texts and not texts[name].null_count for name in REQUIRED)
    if not whole or not all(map(_is_text, texts.values())):
        return None
    positions: Iterable[int] = repeat(0)
    if "position" in columns:
        column = columns["position"]
        if not pa.types.is_integer(column.type) or column.null_count:
            return None
        least_most = pc.min_max(column).as_py()
        if len(column) and not 0 <= least_most["min"] <= least_most["max"] < MOST:
            return None
        positions = column.to_pylist()
    values = {name: pc.fill_null(column, "").to_pylist() for name, column in texts.items()}
    ids, none = values["id"], repeat("")
    # In a table without articles, each passage is its own article.
    owners = values.get("article_id", ids)
    titles, sections = values.get("title", none), values.get("section", none)
    rows = ids, titles, values["text"], owners, sections, positions, wheres
    fields = {name.removeprefix(FIELD): columns[name].to_pylist() for name in columns if name.startswith(FIELD)}
    if not fields:
        return map(Passage, *rows)
    return map(Passage, *rows, (dict(zip(fields, given)) for given in zip(*fields.values())))


def _is_text(column: pa.Array) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))
