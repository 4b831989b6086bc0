"""The fingerprint of a corpus and the difference between two, compared with counts from plain sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.corpus.difference import difference, fingerprint
from stillhouse.corpus.store import Corpus, write_tables
from stillhouse.releases.refresh.plan import Level, Thresholds, plan

Rows = dict[str, tuple[str, str]]
"""Passage id -> title and text."""

OLD: Rows = {f"p{n}": (f"title {n // 4}", f"the text of passage {n}") for n in range(20)}
CASES: dict[str, Callable[[Rows], Rows]] = {
    "nothing": lambda rows: rows,
    "another order": lambda rows: dict(reversed(rows.items())),
    "added": lambda rows: rows | {"new": ("t", "more"), "newer": ("t", "even more")},
    "removed": lambda rows: {key: value for key, value in rows.items() if key not in ("p3", "p19")},
    "text changed": lambda rows: rows | {"p5": ("title 1", "another text")},
    "title changed": lambda rows: rows | {"p5": ("another title", rows["p5"][1])},
    "renamed": lambda rows: {f"x{key}": value for key, value in rows.items()},
    "moved by one": lambda rows: dict(zip([*rows, "p20"], [("t", "a first one"), *rows.values()])),
    "title and text exchanged": lambda rows: rows | {"p5": (rows["p5"][1], rows["p5"][0])},
    "all": lambda rows: {key: ("", f"other {key}") for key in rows},
    "emptied": lambda rows: {},
    "duplicates": lambda rows: rows | {"copy 1": rows["p1"], "copy 2": rows["p1"]},
}


def corpus_of(folder: Path, rows: Rows, qrels: int = 2, titles: str = "space") -> Corpus:
    table = {
        "passage_id": list(rows),
        "title": [title for title, _ in rows.values()],
        "text": [text for _, text in rows.values()],
        "article_id": ["a"] * len(rows),
        "section": [""] * len(rows),
        "position": list(range(len(rows))),
    }
    queries = {"query_id": ["q0", "q1"], "text": ["what", "where"], "split": ["train", "test"]}
    judged = {"query_id": ["q0", "q1"], "passage_id": ["p0", "p1"], "relevance": [1, 1], "split": ["train", "test"]}
    with whole_folder(folder) as staging:
        tables = {
            "passages": table,
            "queries": queries,
            "qrels": {key: column[:qrels] for key, column in judged.items()},
        }
        write_tables(staging, tables if rows else {name: tables[name] for name in ("queries", "qrels")})
        write_manifest(staging, "ingest", {}, {}, {"titles": titles})
    return Corpus.open(folder)


@pytest.mark.parametrize("case", CASES)
def test_difference_equals_that_of_plain_sets(case: str, tmp_path: Path) -> None:
    now = CASES[case](OLD)
    found = difference(corpus_of(tmp_path / "old", OLD), corpus_of(tmp_path / "new", now))
    order, before = list(now), list(OLD)
    assert {order[row] for row in found.added} == now.keys() - OLD.keys()
    assert {before[row] for row in found.removed} == OLD.keys() - now.keys()
    assert {order[row] for row in found.changed} == {key for key in now.keys() & OLD.keys() if now[key] != OLD[key]}
    assert found.new_texts == sum(value not in OLD.values() for value in now.values())
    assert found.gone_texts == sum(value not in now.values() for value in OLD.values())
    assert (found.old, found.new) == (len(OLD), len(now))
    assert found.none == (now == OLD)


@pytest.mark.parametrize("case", CASES)
def test_fingerprints_are_equal_where_nothing_changed(case: str, tmp_path: Path) -> None:
    old, new = corpus_of(tmp_path / "old", OLD), corpus_of(tmp_path / "new", CASES[case](OLD))
    assert (fingerprint(old) == fingerprint(new)) == difference(old, new).none


def test_differences_in_labels_and_titles_are_found(tmp_path: Path) -> None:
    """A removed qrel changes no passage; another `titles` setting changes the text of every passage."""
    old = corpus_of(tmp_path / "old", OLD)
    labels = difference(old, corpus_of(tmp_path / "labels", OLD, qrels=1))
    assert labels.labels_changed and not labels.none and labels.share == 0
    titles = corpus_of(tmp_path / "titles", OLD, titles="left_out")
    assert len(difference(old, titles).changed) == 20 and difference(old, titles).share == 1
    assert fingerprint(old) != fingerprint(titles)


def test_a_changed_field_alone_is_a_difference(tmp_path: Path) -> None:
    def with_fields(name: str, rows: Rows, years: dict[str, int]) -> Corpus:
        corpus = corpus_of(tmp_path / name, rows)
        pq.write_table(pa.table({"year": [years.get(id) for id in rows]}), corpus.folder / "fields.parquet")
        return corpus

    years = {id: int(id[1:]) for id in OLD if id != "p7"}
    old, turned = with_fields("old", OLD, years), with_fields("turned", dict(reversed(OLD.items())), years)
    assert difference(old, turned).none and fingerprint(old) == fingerprint(turned)
    for new in (with_fields("new", OLD, years | {"p7": 7}), corpus_of(tmp_path / "none", OLD)):
        found = difference(old, new)
        assert found.fields_changed and not found.none and fingerprint(old) != fingerprint(new)
        assert plan(found, Thresholds()).level == Level.INDEX


def test_the_share_of_changed_texts_and_the_summary_line(tmp_path: Path) -> None:
    """By hand: one of 20 texts changes (one new, one gone) and one is added, so the share is 2 of 21."""
    now = OLD | {"p5": ("t", "another"), "p20": ("t", "more")}
    found = difference(corpus_of(tmp_path / "old", OLD), corpus_of(tmp_path / "new", now))
    assert found.share == pytest.approx(2 / 21)
    assert str(found) == "1 passages added, 1 changed, 0 removed (texts: 2 new, 1 gone: 9.52%)"
