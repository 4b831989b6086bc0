"""The targets of `make fuzz` accept their seeds, as a fuzzer that stops there tests nothing, and detect mistakes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz_targets import SEEDS, reader
from sources_to_damage import SOURCES, needs_parser

from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Passage, Qrel, Query, Row, Source


@pytest.mark.parametrize("name", SEEDS)
def test_a_whole_source_is_read(name: str) -> None:
    needs_parser(name)
    for seed in SEEDS[name]:
        reader(name)(seed)


def test_the_target_detects_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise KeyError("a row")

    monkeypatch.setattr("held_against_slow.ingest_source", broken)
    with pytest.raises(KeyError):
        reader("beir")(SEEDS["beir"][0])


@pytest.mark.parametrize("kind", ["hub", "own", "reranker", "cosine", "bag"])
def test_a_whole_model_folder_is_not_refused(kind: str, tmp_path: Path) -> None:
    from fuzz_models import read_model_folder
    from models_to_damage import PLACES, SEEDS

    read_model_folder(next(seed for seed, (of, _) in zip(SEEDS, PLACES) if of == kind), tmp_path)


@pytest.mark.parametrize("part", ["config.json", "tokenizer.json", "model.safetensors", "stillhouse.json"])
def test_a_model_folder_is_damaged_field_by_field(part: str) -> None:
    """Damaged files vary and are still JSON, so that the damage reaches the code that reads the fields."""
    import fuzz_models
    from models_to_damage import PLACES, SEEDS

    [data] = [seed for seed, (kind, file) in zip(SEEDS, PLACES) if (kind, file) == ("own", part)]
    made = {fuzz_models.damaged(data, seed, lambda whole: whole) for seed in range(200)}
    assert len(made) > 50 and {one[:1] for one in made} == {data[:1]}
    for content in (one[1:] for one in made):
        json.loads(content if part.endswith(".json") else content[8 : 8 + int.from_bytes(content[:8], "little")])


def test_the_target_detects_a_model_that_computes_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target fails if a reader stops refusing NaN in the weights."""
    import numpy as np
    from models_to_damage import PLACES, SEEDS

    number = PLACES.index(("own", "2_Dense/model.safetensors"))
    data = SEEDS[number][:-4] + np.float32("nan").tobytes()
    reader("model-folder")(data)
    monkeypatch.setattr("stillhouse.retrieval.models.transformer.refuse_not_finite", lambda *_: None)
    with pytest.raises(AssertionError):
        reader("model-folder")(data)


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


ARTICLES_ALONE = ("article-tree", "html-tree", "markdown-tree")
OF_QUERIES = ("another question", "another grade", "another split")


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (wrong, name)
        for wrong in WRONG
        for name in sorted([*SOURCES, "markdown-tree"])
        if not (wrong in OF_QUERIES and name in ARTICLES_ALONE)
    ],
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


@pytest.mark.parametrize(
    "check",
    [
        "stillhouse.own_files._refuse",
        "folder_flags.refuse_foreign_outputs",
        "folder_flags.refuse_foreign_use",
        "stillhouse.workflow.workspace.refuse_taken",
    ],
)
def test_the_target_detects_a_skipped_folder_check(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, lambda *given: None)
    with pytest.raises(AssertionError):
        for seed in SEEDS["folder-flags"]:
            reader("folder-flags")(seed)


def test_the_target_detects_a_folder_error_without_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise FileExistsError("a file")

    monkeypatch.setattr("folder_flags.refuse_foreign_files", broken)
    with pytest.raises(FileExistsError):
        reader("folder-flags")(SEEDS["folder-flags"][0])
