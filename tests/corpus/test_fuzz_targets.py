"""The functions that `make fuzz` feeds take what they begin with: a fuzzer that stops there has looked at nothing."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fuzz_targets import SEEDS, reader

from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Passage, Qrel, Query, Row, Source


@pytest.mark.parametrize("name", SEEDS)
def test_a_whole_source_is_read(name: str) -> None:
    if name == "html-tree" and importlib.util.find_spec("lxml") is None:
        pytest.skip("lxml is not installed")
    for seed in SEEDS[name]:
        reader(name)(seed)


def test_what_no_reader_may_raise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise KeyError("a row")

    monkeypatch.setattr("held_against_slow.ingest_source", broken)
    with pytest.raises(KeyError):
        reader("beir")(SEEDS["beir"][0])


WRONG: dict[str, Callable[[list[Any]], list[Row]]] = {
    "another text": lambda rows: [row._replace(text=row.text + ".") if type(row) is Passage else row for row in rows],
    "another title": lambda rows: [row._replace(title="z") if type(row) is Passage else row for row in rows],
    "another question": lambda rows: [row._replace(text="z") if type(row) is Query else row for row in rows],
    "another grade": lambda rows: [row._replace(relevance="9") if type(row) is Qrel else row for row in rows],
    "another split": lambda rows: [row._replace(split="dev") if type(row) is Qrel else row for row in rows],
    "a row less": lambda rows: rows[:-1],
    "a row twice": lambda rows: rows + rows[:1],
    "another order": lambda rows: rows[::-1],
}


@pytest.mark.parametrize("name", sorted(set(SEEDS) - {"html-tree", "params", "run", "article-tree"}))
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_row_is_seen(wrong: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*given: str) -> Source:
        source = open_source(*given)

        def rows() -> Iterator[Row]:
            return iter(WRONG[wrong](list(source.rows())))

        return dataclasses.replace(source, rows=rows)

    monkeypatch.setattr("held_against_slow.open_source", mistaken)
    with pytest.raises(AssertionError):
        reader(name)(SEEDS[name][0])
