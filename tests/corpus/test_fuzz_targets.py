"""The targets of `make fuzz` accept their seeds, as a fuzzer that stops there tests nothing, and detect mistakes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz_targets import SEEDS, reader
from held_against_slow import TREES
from sources_to_damage import SOURCES, needs_parser

from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Passage, Qrel, Query, Row, Source


@pytest.mark.parametrize("name", SEEDS)
def test_a_whole_source_is_read(name: str) -> None:
    needs_parser(name)
    for seed in SEEDS[name]:
        reader(name)(seed)


@pytest.mark.parametrize("kind", ["hub", "own", "reranker", "cosine", "bag"])
def test_a_whole_model_folder_is_not_refused(kind: str, tmp_path: Path) -> None:
    from fuzz_models import read_model_folder
    from models_to_damage import PLACES, SEEDS

    read_model_folder(next(seed for seed, (of, _) in zip(SEEDS, PLACES) if of == kind), tmp_path)


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


@pytest.mark.parametrize(
    ("wrong", "name"),
    [(wrong, name) for wrong in WRONG for name in sorted(SOURCES) if name not in TREES],
)
def test_the_target_detects_a_wrong_row(wrong: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_parser(name)

    def mistaken(*given: str) -> Source:
        source = open_source(*given)

        def rows() -> Iterator[Row]:
            return iter(WRONG[wrong](list(source.rows())))

        return dataclasses.replace(source, rows=rows)

    monkeypatch.setattr("held_against_slow.open_source", mistaken)
    with pytest.raises(AssertionError):
        reader(name)(SEEDS[name][0])
