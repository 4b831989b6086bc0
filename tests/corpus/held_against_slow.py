"""Reads a source with its reader and with the slow one, and compares the results row by row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from slow_cells import Refused
from slow_corpus import slow_tables
from slow_readers import Row, slow_rows
from slow_trees import page_fault

from stillhouse.corpus.ingestion import Choices, ingest_source
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import LeftOut, Passage, Rejected
from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError

COLUMNS = {
    "passages": ["passage_id", "title", "text", "article_id", "section", "position"],
    "links": ["source", "target"],
    "queries": ["query_id", "text", "split"],
    "qrels": ["query_id", "passage_id", "relevance", "split"],
    "answers": ["query_id", "answer", "kind"],
}
TREES = ("html-tree", "article-tree")
"""Formats that a library parses: their passages have the letters of the file, in its order."""
MAY_REFUSE_MORE = ("parquet",)
"""Formats whose reader may refuse damage that the slow reader does not notice."""


def check_source(name: str, files: dict[str, bytes], folder: Path) -> None:
    """Reads `files` from `folder / "source"` into a corpus in `folder / "corpus"`, and checks every row."""
    format = "tables" if name == "parquet" else name
    expected: list[Row] | None
    try:
        expected = None if name in TREES else slow_rows(name, files)
    except Refused:
        expected = None
    try:
        rows = list(open_source(str(folder / "source"), format).rows())
    except InputError as error:
        assert str(error)
        assert expected is None or name in MAY_REFUSE_MORE, f"refused without need: {error}"
        return
    logged = [row_shown(row) for row in rows]
    if name in TREES:
        _check_pages(rows, files)
        expected = logged
    assert expected is not None, f"read, and is to be refused: {logged}"
    surplus, lacking = Counter(logged) - Counter(expected), Counter(expected) - Counter(logged)
    assert not surplus and not lacking, f"wrong rows {dict(surplus)} for {dict(lacking)}"
    assert [row for row in logged if row[0] == "passage"] == [row for row in expected if row[0] == "passage"]
    _check_corpus(expected, rows, format, folder)


def row_shown(row: Any) -> Row:
    """A row as a tuple of its kind and values, without the place that it comes from."""
    if isinstance(row, Rejected):
        assert row.reason and row.where, row
        return ("rejected",)
    return ("left out",) if isinstance(row, LeftOut) else (type(row).__name__.lower(), *row[:-1])


def _check_pages(rows: list[Any], files: dict[str, bytes]) -> None:
    """Checks that the words of all passages are in their page, in the same order."""
    for name, content in files.items():
        of_page = [row for row in rows if getattr(row, "where", "").rpartition(":")[0] == name]
        fault = page_fault(content, [row.text for row in of_page if isinstance(row, Passage)])
        assert of_page and not fault, fault


def _check_corpus(expected: list[Row], rows: list[Any], format: str, folder: Path) -> None:
    """Checks that the tables hold the expected rows after cleaning, and that every row left out is counted."""
    (folder / "corpus").mkdir()
    source = open_source(str(folder / "source"), format)
    if _lost(expected, rows):
        with pytest.raises(InputError):
            ingest_source(source, Choices(max_queries={}, seed=0), folder / "corpus")
        return
    left_out = ingest_source(source, Choices(max_queries={}, seed=0), folder / "corpus")["left_out"]
    corpus = Corpus.open(folder / "corpus")
    for table, wanted in slow_tables(expected).items():
        if table == "not_prose":
            assert corpus.not_prose == dict(wanted)
            continue
        found = list(getattr(corpus, table)[COLUMNS[table]].itertuples(index=False, name=None))
        assert found == wanted if table == "passages" else sorted(found) == sorted(wanted), (
            f"{table}: {found}, {wanted}"
        )
    for table, kind in (("passages", "passage"), ("queries", "query"), ("qrels", "qrel")):
        logged = sum(number for reason, number in left_out.items() if reason.startswith(f"{kind}: "))
        present = sum(getattr(row, "kind", type(row).__name__.lower()) == kind for row in rows)
        assert len(getattr(corpus, table)) + (corpus.rejected["kind"] == kind).sum() + logged == present, kind


def _lost(expected: list[Row], rows: list[Any]) -> bool:
    """Whether no passage is left, or no question of a split that has labels, right or wrong ones."""
    tables = slow_tables(expected)
    labelled = {row[4] for row in expected if row[0] == "qrel"}
    labelled |= {"test" for row in expected if row[0] == "answer" and row[4] == "test"}
    for row in rows:
        if isinstance(row, Rejected) and row.kind == "qrel":
            labelled |= {split for split in ("train", "dev", "test") if split in row.where}
    return not tables["passages"] or not labelled <= {split for _, _, split in tables["queries"]}
